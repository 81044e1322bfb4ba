"""A channel's content name, as its documents and its latest entries make it."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from service.discovery.names import MOST_AUTHORS, MOST_TAGS, Traits, channel_pairs
from service.discovery.pairs import Pair
from service.feeds.urls import host_of, without_selector
from service.net.sites import site_of
from service.store.channels import Channels
from service.store.state import ChannelState

_LATEST = 20
_OWN_TAGS = MOST_TAGS // 2
"""What a feed says of itself comes first, but leaves room for what its entries say."""


async def name_of(channels: Channels, state: ChannelState, now_s: float) -> frozenset[Pair]:
    """Return a channel's name, public or not; ``now_s`` is Unix time.

    Raises :class:`service.errors.StoreUnavailable`.
    """
    cid = state.channel.id
    latest, (imprint,) = await asyncio.gather(channels.latest(cid, _LATEST), channels.imprints([cid]))
    often = _frequent((tag for entry in latest for tag in entry.tags), MOST_TAGS)
    traits = Traits(
        state.channel.language,
        tags=(*imprint.tags[:_OWN_TAGS], *often),
        generator=imprint.generator,
        authors=_frequent((author for entry in latest for author in entry.authors), MOST_AUTHORS),
    )
    return _named(state, traits, now_s)


def may_match(pairs: Iterable[Pair], state: ChannelState, now_s: float) -> bool:
    """Say whether a channel has those of the pairs that can be told without reading what it has published."""
    own = _named(state, Traits(state.channel.language), now_s)
    return all(pair in own for pair in pairs if not pair.startswith(("tag=", "author=", "generator=", "version=")))


def _named(state: ChannelState, traits: Traits, now_s: float) -> frozenset[Pair]:
    channel = state.channel
    domain = site_of(host_of(without_selector(channel.url)))
    return frozenset(channel_pairs(channel, traits, domain, state.updates.interval_s(now_s)))


def _frequent(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(text for text, _ in Counter(texts).most_common(most))
