"""The registration of a node's own channels in the directory: registers, refreshes, updates and withdraws their names.

A channel is registered with AV-pairs (attributes and values), by which searches find it. Registrations are soft state:
a name is refreshed well before it expires, and again by the channel's next owner. The AV-pairs of the last registration
are stored with the channel, so that any owner withdraws obsolete pairs.
"""

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import structlog

from service.clock import Clock
from service.discovery.discover import attribute_weights
from service.discovery.visibility import is_public
from service.errors import CellsUnavailable
from service.model import ChannelId
from service.search import read_channel_name
from service.store import Store
from service.store.channels.channel_records import ChannelState
from service.store.directory.matrices import ContentName
from workers.polling.scheduler import DueQueue

NAME_TTL_S = 6 * 3600.0
REFRESH_INTERVAL_S = NAME_TTL_S / 3
SECRECY_RECHECK_S = 300.0
"""How often a channel with a secret in its URL is examined again, in case its URL has changed."""
RETRY_INTERVAL_S = 30.0
"""Time after which a failed registration is repeated."""
MAX_DUE = 500
"""Maximum number of channels that are registered in one call. A node that takes over the channels of a dead one has
more urgent work, and their names last."""


log = structlog.get_logger(__name__)


class DirectoryRegistrar:
    """Registers the channels of one node, and decides when each of them is due again.

    The store has the registered names; this class has only the times at which channels are due. Nothing is
    remembered of channels that are private, as most are.
    """

    def __init__(self, store: Store, clock: Clock, least_subscribers: int) -> None:
        """Create a registrar; a channel with at least ``least_subscribers`` subscribers is public and registered."""
        self._store = store
        self._clock = clock
        self._least_subscribers = least_subscribers
        self._due = DueQueue()
        """When channels are due that have enough subscribers, or that an admin has listed."""
        self._listed: set[ChannelId] = set()
        """Channels with few subscribers that an admin has listed."""

    def on_changed(self, channel_id: ChannelId) -> None:
        """Register a channel again at the next call of :meth:`register_due`, because the channel has changed."""
        if channel_id in self._due:
            self._due.schedule(channel_id, 0.0)

    def remove(self, channel_id: ChannelId) -> None:
        """Remove a channel that another node now owns.

        The channel's name stays in the directory until the new owner registers it, or the name expires.
        """
        self._due.remove(channel_id)
        self._listed.discard(channel_id)

    async def examine(self, counts: Sequence[tuple[ChannelId, int]]) -> None:
        """Make the channels due that have become public or private.

        ``counts`` has pairs of a channel and its number of subscribers. Raises
        :class:`service.errors.StoreUnavailable`.
        """
        unlisted = []
        for channel_id, count in counts:
            if channel_id in self._due:
                if self._has_few(count) is not (channel_id in self._listed):
                    self._due.schedule(channel_id, 0.0)
            elif self._has_few(count):
                unlisted.append(channel_id)
            else:
                self._due.schedule(channel_id, 0.0)
        for channel in await self._store.channels.get_many(unlisted):
            if channel is not None and channel.listed:
                self._due.schedule(channel.id, 0.0)

    async def register_due(self) -> None:
        """Register the channels of this node that are new, changed or due to be refreshed, up to ``MAX_DUE`` of them.

        Raises :class:`service.errors.StoreUnavailable`.
        """
        now_s = self._clock.monotonic_s()
        due = [channel_id for _, channel_id in self._due.pop_due(now_s, MAX_DUE)]
        for channel_id in due:
            self._due.schedule(channel_id, now_s + RETRY_INTERVAL_S)
        if due:
            counts = await self._store.subscriptions.counts(due)
            try:
                await self._register_batch(dict(zip(due, counts, strict=True)), now_s)
            except CellsUnavailable as error:
                log.warning("channel registration failed", channels=len(due), reason=str(error))

    def _has_few(self, count: int) -> bool:
        return count < self._least_subscribers

    async def _register_batch(self, counts: dict[ChannelId, int], now_s: float) -> None:
        states = [state for state in await self._store.channels.states(list(counts)) if state is not None]
        channel_ids = [state.channel.id for state in states]
        present = await asyncio.gather(*(self._read_pairs(state, counts[state.channel.id]) for state in states))
        previous = await self._store.channels.content_names(channel_ids)
        names: list[ContentName] = []
        for state, pairs, before in zip(states, present, previous, strict=True):
            channel_id = state.channel.id
            if pairs != before:
                # First of all: a search that finds the channel by an obsolete pair checks the pairs stored here.
                await self._store.channels.set_content_name(channel_id, state.channel.version, pairs)
            if before - pairs:
                await self._store.channel_directory.withdraw(channel_id, before - pairs, NAME_TTL_S)
            if pairs:
                age_s = self._clock.wall_s() - state.channel.created_s
                weights = attribute_weights(pairs, counts[channel_id], age_s)
                names.append(ContentName(channel_id, dict.fromkeys(pairs, 1) | weights))
        await self._store.channel_directory.register(names, NAME_TTL_S)
        self._schedule(counts, {name.id for name in names}, now_s)

    def _schedule(self, counts: dict[ChannelId, int], public: AbstractSet[ChannelId], now_s: float) -> None:
        """Set the times at which these channels are due again; ``now_s`` is the present time in seconds.

        ``counts`` has their numbers of subscribers; ``public`` are the channels that have been registered.
        """
        for channel_id, count in counts.items():
            if self._due.due_s(channel_id) != now_s + RETRY_INTERVAL_S:
                continue  # it has changed, or was removed, meanwhile
            self.remove(channel_id)
            if channel_id in public or not self._has_few(count):
                interval_s = REFRESH_INTERVAL_S if channel_id in public else SECRECY_RECHECK_S
                self._due.schedule(channel_id, now_s + interval_s)
                if self._has_few(count):
                    self._listed.add(channel_id)

    async def _read_pairs(self, state: ChannelState, count: int) -> frozenset[str]:
        """Return the AV-pairs (attributes and values) with which to register a channel that has ``count`` subscribers.

        The result is empty for a channel that is private or has moved.
        """
        channel, least = state.channel, self._least_subscribers
        if channel.moved_to or not is_public(channel.url, count, listed=channel.listed, least_subscribers=least):
            return frozenset()
        return await read_channel_name(self._store, state, self._clock.wall_s())
