"""The names of a node's own channels in the directory: registered, refreshed, changed, and withdrawn.

Soft state: a name is refreshed well before it expires, and again by whoever owns its channel next. A name that has
changed since this node named it is replaced; of one that another node named, the older version fades.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import structlog

from service.clock import Clock
from service.discovery.names import MOST_AUTHORS, MOST_TAGS, Traits, channel_pairs
from service.discovery.secrecy import is_public
from service.errors import CellsLost
from service.feeds.urls import host_of, without_selector
from service.model import ChannelId
from service.net.sites import site_of
from service.store import Store
from service.store.directory import Name
from service.store.state import ChannelState

KEPT_S = 6 * 3600.0
REFRESHED_S = KEPT_S / 3
LOOKED_AGAIN_S = 300.0
"""After so long it is found out that an admin has listed a channel that was not public."""
_LATEST = 20
_OWN_TAGS = MOST_TAGS // 2
"""What a feed says of itself comes first, but leaves room for what its entries say."""
_AT_ONCE = 100

log = structlog.get_logger(__name__)


class _Named(msgspec.Struct):
    version: int
    pairs: frozenset[str]
    subscribers: int
    due_s: float


class Naming:
    """What a node has named. Belongs to one node."""

    def __init__(self, store: Store, clock: Clock, least_subscribers: int) -> None:
        """``least_subscribers`` make a channel public."""
        self._store = store
        self._clock = clock
        self._least_subscribers = least_subscribers
        self._named: dict[ChannelId, _Named] = {}

    def news_of(self, cid: ChannelId) -> None:
        """Name a channel anew at the next opportunity: it has changed."""
        if cid in self._named:
            self._named[cid].due_s = 0.0

    def forget(self, cid: ChannelId) -> None:
        """A channel is somebody else's now; its name lasts until they name it."""
        self._named.pop(cid, None)

    async def keep(self, counted: Sequence[tuple[ChannelId, int]]) -> None:
        """Name those of our channels, each with how many subscribe, that are new, changed or to be refreshed.

        Raises :class:`service.errors.StoreUnavailable`.
        """
        now_s = self._clock.monotonic_s()
        due = {cid: count for cid, count in counted if self._is_due(cid, count, now_s)}
        for first in range(0, len(due), _AT_ONCE):
            some = dict(list(due.items())[first : first + _AT_ONCE])
            try:
                await self._keep(some, now_s)
            except CellsLost as error:
                log.warning("channels are not in the directory", channels=len(some), why=str(error))

    def _is_due(self, cid: ChannelId, count: int, now_s: float) -> bool:
        held = self._named.get(cid)
        return held is None or now_s >= held.due_s or (count != held.subscribers and self._passed(count, held))

    def _passed(self, count: int, held: _Named) -> bool:
        return (count >= self._least_subscribers) != (held.subscribers >= self._least_subscribers)

    async def _keep(self, counts: dict[ChannelId, int], now_s: float) -> None:
        fresh, again = [], []
        states = [state for state in await self._store.channels.states(list(counts)) if state is not None]
        named = await asyncio.gather(*(self._pairs(state, counts[state.channel.id]) for state in states))
        for state, pairs in zip(states, named, strict=True):
            cid = state.channel.id
            before = self._named.get(cid)
            if pairs and before is not None and before.pairs == pairs:
                again.append(Name(cid, before.version, pairs))
            elif pairs:
                fresh.append(Name(cid, int(time.time() * 1000), pairs))
            if pairs != (before.pairs if before is not None else frozenset()):
                # First of all: whoever finds it by what it has no more looks here what it has.
                await self._store.channels.set_name(cid, state.channel.version, pairs)
            if before is not None and before.pairs - pairs:
                version = int(time.time() * 1000)
                await self._store.names.withdraw(cid, version, before.pairs - pairs, KEPT_S)
        await self._store.names.register(again, KEPT_S, changed=False)
        await self._store.names.register(fresh, KEPT_S, changed=True)
        versions = {name.id: name for name in (*again, *fresh)}
        for cid, count in counts.items():
            name = versions.get(cid, Name(cid, 0, frozenset()))
            due_s = now_s + (REFRESHED_S if name.pairs else LOOKED_AGAIN_S)
            self._named[cid] = _Named(name.version, name.pairs, count, due_s)

    async def _pairs(self, state: ChannelState, count: int) -> frozenset[str]:
        """Return a channel's name; nothing if it is its subscribers' own business."""
        channel, least = state.channel, self._least_subscribers
        if channel.moved_to or not is_public(channel.url, count, listed=channel.listed, least_subscribers=least):
            return frozenset()
        channels = self._store.channels
        latest, (imprint,) = await asyncio.gather(channels.latest(channel.id, _LATEST), channels.imprints([channel.id]))
        often = _frequent((tag for entry in latest for tag in entry.tags), MOST_TAGS)
        traits = Traits(
            channel.language,
            tags=(*imprint.tags[:_OWN_TAGS], *often),
            generator=imprint.generator,
            authors=_frequent((author for entry in latest for author in entry.authors), MOST_AUTHORS),
        )
        domain = site_of(host_of(without_selector(channel.url)))
        return frozenset(channel_pairs(channel, traits, domain, state.updates.interval_s(time.time())))


def _frequent(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(text for text, _ in Counter(texts).most_common(most))
