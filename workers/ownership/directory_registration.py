"""The names of a node's own channels in the directory: registered, refreshed, changed, and withdrawn.

Soft state: a name is refreshed well before it expires, and again by whoever owns its channel next. What a channel was
named by is kept with it, whoever did so: pairs that it has no more are withdrawn.
"""

import asyncio
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import structlog

from service.clock import Clock
from service.discovery.visibility import is_public
from service.errors import CellsUnavailable
from service.model import ChannelId
from service.search import read_channel_name
from service.store import Store
from service.store.channels.channels import ChannelState
from service.store.directory.matrices import ContentName

KEPT_S = 6 * 3600.0
REFRESHED_S = KEPT_S / 3
LOOKED_AGAIN_S = 300.0
"""After so long it is found out that a channel's URL carries no secret any more."""
WALKS = 6
"""In each of so many walks a part of the channels that few follow is looked at: an admin may have listed them. Nothing
is remembered of those that are nobody else's business, which most are."""
_AT_ONCE = 100
_NEW_AT_ONCE = 20
"""Of some hundred channels that another node may have named: who takes over from a dead one has more urgent things to
do, and their names last."""

log = structlog.get_logger(__name__)


class DirectoryRegistrar:
    """When which channel is to be named. Belongs to one node.

    What was named is with the channel; here is only when to look again, and that only of what is anybody's business.
    """

    def __init__(self, store: Store, clock: Clock, least_subscribers: int) -> None:
        """``least_subscribers`` make a channel public."""
        self._store = store
        self._clock = clock
        self._least_subscribers = least_subscribers
        self._due_s: dict[ChannelId, float] = {}
        """When channels are due that enough people follow, or that an admin has listed."""
        self._listed: set[ChannelId] = set()
        """Those that few follow."""
        self._walks = 0

    def news_of(self, cid: ChannelId) -> None:
        """Name a channel anew at the next opportunity: it has changed."""
        if cid in self._due_s:
            self._due_s[cid] = 0.0

    def forget(self, cid: ChannelId) -> None:
        """A channel is somebody else's now; its name lasts until they name it."""
        self._due_s.pop(cid, None)
        self._listed.discard(cid)

    def walked(self) -> None:
        """All our channels have been counted once more."""
        self._walks += 1

    async def keep(self, counted: Sequence[tuple[ChannelId, int]]) -> None:
        """Name those of our channels, each with how many subscribe, that are new, changed or to be refreshed.

        Raises :class:`service.errors.StoreUnavailable`.
        """
        now_s = self._clock.monotonic_s()
        due = {cid: count for cid, count in counted if self._is_due(cid, count, now_s)}
        new = [(cid, count) for cid, count in counted if cid not in self._due_s and not self._is_for_few(count)]
        due.update(new[:_NEW_AT_ONCE])
        for first in range(0, len(due), _AT_ONCE):
            some = dict(list(due.items())[first : first + _AT_ONCE])
            try:
                await self._keep(some, now_s)
            except CellsUnavailable as error:
                log.warning("channels are not in the directory", channels=len(some), why=str(error))

    def _is_for_few(self, count: int) -> bool:
        return count < self._least_subscribers

    def _is_due(self, cid: ChannelId, count: int, now_s: float) -> bool:
        due_s = self._due_s.get(cid)
        if due_s is None:
            return self._is_for_few(count) and int(cid[:4], 16) % WALKS == self._walks % WALKS
        # It may have become public by its subscribers, or not be any more.
        return now_s >= due_s or self._is_for_few(count) is not (cid in self._listed)

    async def _keep(self, counts: dict[ChannelId, int], now_s: float) -> None:
        states = [state for state in await self._store.channels.states(list(counts)) if state is not None]
        cids = [state.channel.id for state in states]
        named = await asyncio.gather(*(self._pairs(state, counts[state.channel.id]) for state in states))
        changed: list[ContentName] = []
        alike: list[ContentName] = []
        for state, pairs, before in zip(states, named, await self._store.channels.content_names(cids), strict=True):
            cid, version = state.channel.id, int(time.time() * 1000)
            if pairs != before:
                # First of all: whoever finds it by what it has no more looks here what it has.
                await self._store.channels.set_content_name(cid, state.channel.version, pairs)
            if before - pairs:
                await self._store.channel_directory.withdraw(cid, version, before - pairs, KEPT_S)
            if pairs:
                (changed if before and before != pairs else alike).append(ContentName(cid, version, pairs))
        await self._store.channel_directory.register(alike, KEPT_S, changed=False)
        await self._store.channel_directory.register(changed, KEPT_S, changed=True)
        self._plan(counts, {name.id for name in (*alike, *changed)}, now_s)

    def _plan(self, counts: dict[ChannelId, int], public: AbstractSet[ChannelId], now_s: float) -> None:
        for cid, count in counts.items():
            self.forget(cid)
            if cid in public or not self._is_for_few(count):
                self._due_s[cid] = now_s + (REFRESHED_S if cid in public else LOOKED_AGAIN_S)
                if self._is_for_few(count):
                    self._listed.add(cid)

    async def _pairs(self, state: ChannelState, count: int) -> frozenset[str]:
        """Return a channel's name; nothing if it is its subscribers' own business."""
        channel, least = state.channel, self._least_subscribers
        if channel.moved_to or not is_public(channel.url, count, listed=channel.listed, least_subscribers=least):
            return frozenset()
        return await read_channel_name(self._store, state, time.time())
