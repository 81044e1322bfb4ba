"""The registration of a node's own channels in the directory: registers, refreshes, updates and withdraws their names.

A channel is registered with AV-pairs (attributes and values), by which searches find it. Registrations are soft state:
a name is refreshed well before it expires, and again by the channel's next owner. The AV-pairs of the last registration
are stored with the channel, so that any owner withdraws obsolete pairs.
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

NAME_TTL_S = 6 * 3600.0
REFRESH_INTERVAL_S = NAME_TTL_S / 3
SECRECY_RECHECK_S = 300.0
"""How often a channel with a secret in its URL is examined again, in case its URL has changed."""
LISTINGS_PER_SCAN = 6
"""Channels with few subscribers are examined in one of so many listings each, because an admin may have listed them.
Nothing is remembered of those that are private, as most are."""
_BATCH_SIZE = 100
_MAX_NEW = 20
"""Channels without a known registration that are registered per batch of a listing. Another node may have registered
them: a node that takes over from a dead one has more urgent work, and their names last."""

log = structlog.get_logger(__name__)


class DirectoryRegistrar:
    """Registers the channels of one node, and decides when each of them is due again.

    The store has the registered names; this class has only the times at which channels are due.
    """

    def __init__(self, store: Store, clock: Clock, least_subscribers: int) -> None:
        """Create a registrar; a channel with at least ``least_subscribers`` subscribers is public and registered."""
        self._store = store
        self._clock = clock
        self._least_subscribers = least_subscribers
        self._due_s: dict[ChannelId, float] = {}
        """When channels are due that have enough subscribers, or that an admin has listed."""
        self._listed: set[ChannelId] = set()
        """Channels with few subscribers that an admin has listed."""
        self._listings = 0

    def on_changed(self, channel_id: ChannelId) -> None:
        """Register a channel again at the next call of :meth:`register`, because the channel has changed."""
        if channel_id in self._due_s:
            self._due_s[channel_id] = 0.0

    def remove(self, channel_id: ChannelId) -> None:
        """Remove a channel that another node now owns.

        The channel's name stays in the directory until the new owner registers it, or the name expires.
        """
        self._due_s.pop(channel_id, None)
        self._listed.discard(channel_id)

    def on_listed(self) -> None:
        """Record that a listing of all channels of this node has been completed."""
        self._listings += 1

    async def register(self, counts: Sequence[tuple[ChannelId, int]]) -> None:
        """Register the channels of this node that are new, changed or due to be refreshed.

        ``counts`` has pairs of a channel and its number of subscribers. Raises
        :class:`service.errors.StoreUnavailable`.
        """
        now_s = self._clock.monotonic_s()
        due = {channel_id: count for channel_id, count in counts if self._is_due(channel_id, count, now_s)}
        new = [
            (channel_id, count)
            for channel_id, count in counts
            if channel_id not in self._due_s and not self._has_few(count)
        ]
        due.update(new[:_MAX_NEW])
        for first in range(0, len(due), _BATCH_SIZE):
            batch = dict(list(due.items())[first : first + _BATCH_SIZE])
            try:
                await self._register_batch(batch, now_s)
            except CellsUnavailable as error:
                log.warning("channel registration failed", channels=len(batch), reason=str(error))

    def _has_few(self, count: int) -> bool:
        return count < self._least_subscribers

    def _is_due(self, channel_id: ChannelId, count: int, now_s: float) -> bool:
        due_s = self._due_s.get(channel_id)
        if due_s is None:
            listing = self._listings % LISTINGS_PER_SCAN
            return self._has_few(count) and int(channel_id[:4], 16) % LISTINGS_PER_SCAN == listing
        # The number of subscribers may have made it public, or private.
        return now_s >= due_s or self._has_few(count) is not (channel_id in self._listed)

    async def _register_batch(self, counts: dict[ChannelId, int], now_s: float) -> None:
        states = [state for state in await self._store.channels.states(list(counts)) if state is not None]
        channel_ids = [state.channel.id for state in states]
        present = await asyncio.gather(*(self._read_pairs(state, counts[state.channel.id]) for state in states))
        previous = await self._store.channels.content_names(channel_ids)
        changed: list[ContentName] = []
        unchanged: list[ContentName] = []
        for state, pairs, before in zip(states, present, previous, strict=True):
            channel_id, version = state.channel.id, int(time.time() * 1000)
            if pairs != before:
                # First of all: a search that finds the channel by an obsolete pair checks the pairs stored here.
                await self._store.channels.set_content_name(channel_id, state.channel.version, pairs)
            if before - pairs:
                await self._store.channel_directory.withdraw(channel_id, version, before - pairs, NAME_TTL_S)
            if pairs:
                (changed if before and before != pairs else unchanged).append(ContentName(channel_id, version, pairs))
        await self._store.channel_directory.register(unchanged, NAME_TTL_S, changed=False)
        await self._store.channel_directory.register(changed, NAME_TTL_S, changed=True)
        self._schedule(counts, {name.id for name in (*unchanged, *changed)}, now_s)

    def _schedule(self, counts: dict[ChannelId, int], public: AbstractSet[ChannelId], now_s: float) -> None:
        """Set the times at which these channels are due again; ``now_s`` is the present time in seconds.

        ``counts`` has their numbers of subscribers; ``public`` are the channels that have been registered.
        """
        for channel_id, count in counts.items():
            self.remove(channel_id)
            if channel_id in public or not self._has_few(count):
                self._due_s[channel_id] = now_s + (REFRESH_INTERVAL_S if channel_id in public else SECRECY_RECHECK_S)
                if self._has_few(count):
                    self._listed.add(channel_id)

    async def _read_pairs(self, state: ChannelState, count: int) -> frozenset[str]:
        """Return the AV-pairs (attributes and values) with which to register a channel that has ``count`` subscribers.

        The result is empty for a channel that is private or has moved.
        """
        channel, least = state.channel, self._least_subscribers
        if channel.moved_to or not is_public(channel.url, count, listed=channel.listed, least_subscribers=least):
            return frozenset()
        return await read_channel_name(self._store, state, time.time())
