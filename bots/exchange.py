"""The values a dialogue deals in; no behaviour.

What it asks of the house is a :data:`Request`, what it says in the end is a :data:`Reply`.
"""

import msgspec

from service.corona.reasons import Reason
from service.discovery.grammar import Finding, Query
from service.discovery.standing import Standing, Watch
from service.errors import CoronetError
from service.habits import Habits
from service.model import Channel, ChannelId, Entry, FeedLink

# Requests. The comment on each says what is sent back into the dialogue; any may raise a CoronetError instead.


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


class MyHabits(msgspec.Struct, frozen=True):
    """→ ``service.habits.Habits``: when the person wants to hear from us."""


class SetHabits(msgspec.Struct, frozen=True):
    """→ None; durable by then, and counts at once."""

    habits: Habits


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


Request = (
    LookUp | TakeNewUrl | Probe | MySubscriptions | AddSubscription | EndSubscription | LatestEntries | AskWhy
    | CheckHealth | Search | MyWatches | AddWatch | EndWatch | MyHabits | SetHabits
)  # fmt: skip


class Followed(msgspec.Struct, frozen=True):
    """One of the user's subscriptions with its channel."""

    number: int
    channel: Channel


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


# Replies.


class Subscribed(msgspec.Struct, frozen=True):
    """It is watched. ``latest`` is the proof.

    ``discovered`` says that the URL was a page which named this feed, ``moved`` that the channel went to another URL.
    """

    followed: Followed
    new: bool
    latest: Entry | None
    discovered: bool = False
    moved: bool = False


class Choose(msgspec.Struct, frozen=True):
    """A question: which of these?"""

    options: tuple[FeedLink, ...]


class Confirm(msgspec.Struct, frozen=True):
    """A question: really end all ``count`` subscriptions?"""

    count: int


class DidYouMean(msgspec.Struct, frozen=True):
    """A question: not understood, but perhaps ``command`` was meant?"""

    command: str


class OfferPage(msgspec.Struct, frozen=True):
    """A question: the page at this canonical URL names no feed; watch the page itself?"""

    url: str


class Found(msgspec.Struct, frozen=True):
    """A question: which of these? ``findings`` are all that were shown so far, ``before`` how many of them earlier.

    ``wanted`` is what the person wrote; ``more``: there are others.
    """

    wanted: str
    query: Query
    findings: tuple[Finding, ...]
    before: int
    more: bool


Question = Choose | Confirm | DidYouMean | OfferPage | Found


class Unsubscribed(msgspec.Struct, frozen=True):
    """These were ended."""

    ended: tuple[Followed, ...]


class NoSuchSubscription(msgspec.Struct, frozen=True):
    """Not found, or not yours: one answer for both."""


class Listing(msgspec.Struct, frozen=True):
    """``found`` of ``total`` subscriptions match ``wanted``."""

    found: tuple[Followed, ...]
    total: int
    wanted: str


class Shown(msgspec.Struct, frozen=True):
    """A channel's latest entries, newest first."""

    followed: Followed
    entries: tuple[Entry, ...]


class Reasoned(msgspec.Struct, frozen=True):
    """Why a channel is polled as it is."""

    followed: Followed
    reason: Reason


class NothingMore(msgspec.Struct, frozen=True):
    """All that was found has been shown, or nothing was asked for."""


class Watching(msgspec.Struct, frozen=True):
    """It is watched for from now on."""

    watch: Watch


class Watches(msgspec.Struct, frozen=True):
    """What a person watches for."""

    watches: tuple[Watch, ...]


class Unwatched(msgspec.Struct, frozen=True):
    """It is watched for no more."""

    watch: Watch


class NoSuchWatch(msgspec.Struct, frozen=True):
    """Not found, or not yours: one answer for both."""


class StatusReport(msgspec.Struct, frozen=True):
    """``failing``: subscription, outcome of its last poll, and since when (Unix s)."""

    count: int
    workers: int
    failing: tuple[tuple[Followed, str, float], ...]


class HabitsTold(msgspec.Struct, frozen=True):
    """When the person is told; ``changed``: from now on."""

    habits: Habits
    changed: bool = False


class UnreadableTime(msgspec.Struct, frozen=True):
    """What stands after ``verb`` is no time, no days, or not what goes with it."""

    verb: str
    words: str


class NoSuchZone(msgspec.Struct, frozen=True):
    """No time zone, or several (``meant``), of this name."""

    words: str
    meant: tuple[str, ...]


class Explained(msgspec.Struct, frozen=True):
    """Help; of everything if ``topic`` is empty."""

    topic: str


class Incomplete(msgspec.Struct, frozen=True):
    """A verb came without what it needs."""

    verb: str


class SubscriptionsFull(msgspec.Struct, frozen=True):
    """No more than ``limit`` subscriptions."""

    limit: int


class NewUrlsUsedUp(msgspec.Struct, frozen=True):
    """No more than ``limit`` new URLs an hour."""

    limit: int


class TooFast(msgspec.Struct, frozen=True):
    """No more than ``limit`` commands a minute; said once, then silence."""

    limit: int


class LetBe(msgspec.Struct, frozen=True):
    """The question is withdrawn, nothing was done."""


class NothingAsked(msgspec.Struct, frozen=True):
    """An answer without a question."""


class NotUnderstood(msgspec.Struct, frozen=True):
    """It resembles nothing we know."""


class Failed(msgspec.Struct, frozen=True):
    """It could not be done; ``subject`` is what it was about (a URL), or empty."""

    error: CoronetError
    subject: str


Reply = (
    Subscribed | Choose | Confirm | DidYouMean | OfferPage | Found | NothingMore | Watching | Watches
    | Unwatched | NoSuchWatch | Unsubscribed | NoSuchSubscription | Listing | Shown | Reasoned | StatusReport
    | HabitsTold | UnreadableTime | NoSuchZone | Explained | Incomplete | SubscriptionsFull | NewUrlsUsedUp
    | TooFast | LetBe | NothingAsked | NotUnderstood | Failed
)  # fmt: skip
