"""What a dialogue asks of the house, and what comes back; no behaviour.

The comment on each request says what is sent back into the dialogue; any may raise a CoronetError instead.
"""

import msgspec

from service.discovery.grammar import Query
from service.discovery.standing import Standing
from service.feeds.opml import Subscribed
from service.habits import Habits
from service.model import Channel, ChannelId
from service.preferences import Preferences


class LookUp(msgspec.Struct, frozen=True):
    """→ the Channel if there is one, or the one that took over from it; else None."""

    channel: ChannelId


class TakeNewUrl(msgspec.Struct, frozen=True):
    """→ whether the user may have one more new URL looked at this hour."""


class Probe(msgspec.Struct, frozen=True):
    """→ ``service.store.requests.Probed``: a worker looks at this canonical URL and makes the channel.

    ``as_page``: of the page itself.
    """

    url: str
    as_page: bool = False


class MySubscriptions(msgspec.Struct, frozen=True):
    """→ tuple of :class:`Followed`, by number."""


class AddSubscription(msgspec.Struct, frozen=True):
    """→ (number, whether it is new); durable by then."""

    channel: ChannelId


class EndSubscription(msgspec.Struct, frozen=True):
    """→ whether there was one; durable by then, and nothing of the channel is sent any more."""

    channel: ChannelId


class LatestEntries(msgspec.Struct, frozen=True):
    """→ tuple of Entry, newest first."""

    channel: ChannelId
    count: int


class AskWhy(msgspec.Struct, frozen=True):
    """→ ``service.corona.reasons.Reason``: why the channel is polled as it is."""

    channel: ChannelId


class NodeOf(msgspec.Struct, frozen=True):
    """→ the xmpp: URI of the pubsub node on which the channel is published; "" if there is none."""

    channel: ChannelId


class MyHabits(msgspec.Struct, frozen=True):
    """→ ``service.habits.Habits``: when the person wants to hear from us."""


class SetHabits(msgspec.Struct, frozen=True):
    """→ None; durable by then, and counts at once."""

    habits: Habits


class PausePlease(msgspec.Struct, frozen=True):
    """→ collection of those of these channels that were not paused yet; from then on nothing of them is sent.

    ``watches``: nor of what is watched for.
    """

    channels: tuple[ChannelId, ...]
    watches: bool = False


class ResumePlease(msgspec.Struct, frozen=True):
    """→ ``service.store.pauses.Resumed``: which of these channels were paused, and what came meanwhile."""

    channels: tuple[ChannelId, ...]
    watches: bool = False


class ReadList(msgspec.Struct, frozen=True):
    """→ ``service.feeds.opml.Outline``: what the list of feeds at this canonical URL says; a worker fetches it."""

    url: str


class ReadListText(msgspec.Struct, frozen=True):
    """→ ``service.feeds.opml.Outline``: what this text, a list of feeds, says."""

    text: str


class Share(msgspec.Struct, frozen=True):
    """→ the URL of the file, which lies on the XMPP server from then on; None if that takes none. UploadRefused."""

    name: str
    body: bytes
    media_type: str


class ImportThese(msgspec.Struct, frozen=True):
    """→ None; durable by then, and begun: each is subscribed to in its turn, and the person told of the end."""

    feeds: tuple[Subscribed, ...]


class AcceptInvitation(msgspec.Struct, frozen=True):
    """→ whether the person may use the bot with this code."""

    code: str


class ForgetEverything(msgspec.Struct, frozen=True):
    """→ for how many days what admins restrict is kept, 0 if nothing is; all else about the person is gone by then."""


class MyPreferences(msgspec.Struct, frozen=True):
    """→ ``service.preferences.ByNumber``."""


class PutPreferences(msgspec.Struct, frozen=True):
    """→ None; durable by then, and counts at once. ``number`` is that of a subscription, or ``FOR_ALL``."""

    number: int
    preferences: Preferences


class CheckHealth(msgspec.Struct, frozen=True):
    """→ :class:`Health` of these channels and the fleet."""

    channels: tuple[ChannelId, ...]


class Search(msgspec.Struct, frozen=True):
    """→ tuple of :class:`service.discovery.grammar.Finding`: the person's own, and what is public."""

    query: Query


class MyWatches(msgspec.Struct, frozen=True):
    """→ tuple of :class:`service.discovery.standing.Watch`, by number."""


class AddWatch(msgspec.Struct, frozen=True):
    """→ the Watch; durable by then."""

    standing: Standing


class EndWatch(msgspec.Struct, frozen=True):
    """→ the Watch of this number that was ended, or None."""

    number: int


class ToldBy(msgspec.Struct, frozen=True):
    """→ :class:`WhatItTold` of a message of ours to the person; None if it told nothing, or we forgot."""

    message_id: str


Request = (
    LookUp | TakeNewUrl | Probe | NodeOf | MySubscriptions | AddSubscription | EndSubscription | LatestEntries | AskWhy
    | CheckHealth | Search | MyWatches | AddWatch | EndWatch | MyHabits | SetHabits | ReadListText
    | ReadList | Share | ImportThese | AcceptInvitation | ForgetEverything | PausePlease | ResumePlease | MyPreferences
    | PutPreferences | ToldBy
)  # fmt: skip


class WhatItTold(msgspec.Struct, frozen=True):
    """The channels that a message told of, and the numbers of what is watched for that it told for."""

    channels: tuple[ChannelId, ...]
    watches: tuple[int, ...]


class Followed(msgspec.Struct, frozen=True):
    """One of the user's subscriptions with its channel, whose title is what the user calls it."""

    number: int
    channel: Channel
    paused: bool = False
    muted: bool = False


class Health(msgspec.Struct, frozen=True):
    """How many workers poll, and which channels fail: id → (outcome, since when in Unix s)."""

    workers: int
    failing: dict[ChannelId, tuple[str, float]]


class Limits(msgspec.Struct, frozen=True):
    """What one user may have, and how many subscribers make a channel anybody's business."""

    subscriptions: int
    new_urls_per_hour: int
    commands_per_minute: int
    watches: int
    public_from_subscribers: int

    def of(self, most_subscriptions: int | None) -> "Limits":
        """Return them for a person for whom an admin has set another number of subscriptions, or None."""
        if most_subscriptions is None:
            return self
        return msgspec.structs.replace(self, subscriptions=most_subscriptions)
