"""The part of the dialogue in which a subscription begins: what is there, how it is wanted, and the proof. Pure."""

from collections.abc import Generator
from typing import Any

import msgspec

from bots.asking import (
    AddSubscription,
    Followed,
    LatestEntries,
    Limits,
    LookUp,
    MyPreferences,
    MySubscriptions,
    Probe,
    PutPreferences,
    Request,
    TakeNewUrl,
)
from bots.carrying import imported_from
from bots.exchange import (
    Choose,
    NewUrlsUsedUp,
    OfferPage,
    Reply,
    Subscribed,
    SubscriptionsFull,
    Wishes,
)
from bots.preferring import wished
from service.errors import ListOfFeeds
from service.feeds.urls import channel_id
from service.model import Channel, Entry
from service.preferences import FOR_ALL, NONE, USUAL_PROOF, ByNumber, Preferences

Part = Generator[Request, Any, Reply]


def subscribed(url: str, wishes: Wishes, limits: Limits, *, as_page: bool = False) -> Part:
    """Subscribe to what is at a canonical URL; ``as_page``: to that page itself, or the part its selector names."""
    wanted = wished(NONE, wishes)
    if not isinstance(wanted, Preferences):
        return wanted
    mine: tuple[Followed, ...] = yield MySubscriptions()
    channel: Channel | None = yield LookUp(channel_id(url))
    url, moved = (channel.url, channel.url != url) if channel is not None else (url, False)
    if len(mine) >= limits.subscriptions and not any(followed.channel.id == channel_id(url) for followed in mine):
        return SubscriptionsFull(limits.subscriptions)
    if channel is not None and not channel.dormant:
        return (yield from _begun(channel, None, wishes, moved=moved))
    if not (yield TakeNewUrl()):
        return NewUrlsUsedUp(limits.new_urls_per_hour)
    probe = Probe(url, as_page or (channel is not None and channel.kind == "page"))
    return (yield from probed(probe, wishes, moved=moved))


def probed(probe: Probe, wishes: Wishes, *, moved: bool = False) -> Part:
    """Have a worker look, and subscribe to what it finds: to one feed, or all of a list."""
    try:
        found = yield probe
    except ListOfFeeds:
        return (yield from imported_from(probe.url))
    if found.channel is None:
        return OfferPage(probe.url, wishes) if found.page else Choose(found.choices, wishes)
    return (yield from _begun(found.channel, found.latest, wishes, discovered=found.discovered, moved=moved))


def _begun(
    channel: Channel, latest: tuple[Entry, ...] | None, wishes: Wishes, *, discovered: bool = False, moved: bool = False
) -> Part:
    """Subscribe to a channel as it is wished; ``latest`` is None if nobody has looked at it just now."""
    preferences: ByNumber = yield MyPreferences()
    proof = _wished(Preferences(proof=preferences.get(FOR_ALL, NONE).proof), wishes).proof
    proof = USUAL_PROOF if proof is None else proof
    if latest is None and proof:
        latest = yield LatestEntries(channel.id, proof)
    number, new = yield AddSubscription(channel.id)
    own = NONE
    if wishes:
        own = msgspec.structs.replace(_wished(preferences.get(number, NONE), wishes), proof=None)
        yield PutPreferences(number, own)
        channel = msgspec.structs.replace(channel, title=own.title or channel.title)
    shown = latest[:proof] if latest is not None and proof else None
    return Subscribed(Followed(number, channel), new, shown, discovered=discovered, moved=moved, preferences=own)


def _wished(before: Preferences, wishes: Wishes) -> Preferences:
    """Return what is wanted after wishes with which nothing is wrong."""
    after = wished(before, wishes)
    return after if isinstance(after, Preferences) else before
