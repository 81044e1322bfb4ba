"""Registers a node's own channels (feeds and pages) in the directory, where searches find them.

A channel's name is registered under each of its attribute-value pairs. Registrations are soft state: they are refreshed
well before they expire, if necessary by the channel's next owner. The pairs are also stored with the channel, so that
any owner can withdraw the registrations of obsolete pairs.

Entries are registered when they are published (:mod:`workers.ownership.fanout`). This module checks once a day that
they are still registered, and withdraws them together with their channel.
"""

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import structlog

from service.clock import Clock
from service.discovery.channel_description import ChannelDescription
from service.discovery.channel_visibility import is_public, public_channels
from service.discovery.discover_listings import attribute_weights
from service.errors import CellsUnavailable
from service.model import Channel, ChannelId
from service.search.entry_registration import DAY_S, NAME_TTL_S, EntryRegistrar
from service.search.searcher import read_channel_name
from service.store import Store
from service.store.channels.channel_records import ChannelState
from service.store.channels.public_entries import EntryTable
from service.store.directory.matrix_directory import ContentName
from workers.polling.due_queue import DueQueue

REFRESH_INTERVAL_S = NAME_TTL_S / 3
RETRY_INTERVAL_S = 30.0
"""Time after which a failed registration is retried."""
CHECK_INTERVAL_S = DAY_S
"""Time between two checks of the entries of a channel."""
MAX_CHECKS = 100
"""Maximum number of channels whose entries are checked in one call. They are checked concurrently, so that their
requests to the store share round trips."""
MAX_DUE = 500
"""Maximum number of channels that are registered in one call. A node that takes over the channels of a dead node has
more urgent work, and their registered names stay valid for hours."""


log = structlog.get_logger(__name__)


class DirectoryRegistrar:
    """Keeps one node's public channels registered in the directory, where searches find them.

    The class also decides when each channel must be registered again. A channel is public if it has enough subscribers,
    or if an admin has listed it.
    """

    # The store has the registered names; this class has only the times at which channels are due. Most channels are not
    # public and take no memory here.

    def __init__(self, store: Store, clock: Clock, least_subscribers: int) -> None:
        """Create a registrar.

        A channel is public if it has at least ``least_subscribers`` subscribers, or if an admin has listed it.
        """
        self._store = store
        self._clock = clock
        self._least_subscribers = least_subscribers
        self._entries = EntryRegistrar(store)
        self._due = DueQueue()
        """The due times of public channels, and of channels that may have become public (monotonic time)."""
        self._refresh_s: dict[ChannelId, float] = {}
        """The times at which unchanged names of public channels are refreshed (monotonic time)."""
        self._checks = DueQueue()
        """The times at which the entries of registered channels are checked (monotonic time)."""
        self._listed: set[ChannelId] = set()
        """Channels with few subscribers that an admin has listed."""

    def on_changed(self, channel_id: ChannelId) -> None:
        """Schedule a changed channel to be registered again by the next call of :meth:`register_due`.

        A channel that this node does not register is ignored.
        """
        if channel_id in self._due:
            self._due.schedule(channel_id, 0.0)

    def remove(self, channel_id: ChannelId) -> None:
        """Forget a channel that another node now owns, so that this node no longer registers it."""
        # The channel's name stays in the directory until the new owner registers it, or the name expires.
        self._due.remove(channel_id)
        self._refresh_s.pop(channel_id, None)
        self._checks.remove(channel_id)
        self._listed.discard(channel_id)

    async def schedule_changed(self, counts: Sequence[tuple[ChannelId, int]]) -> None:
        """Schedule newly public channels for registration, and channels that are no longer public for withdrawal.

        ``counts`` contains pairs (channel, number of subscribers). Raises :class:`service.errors.StoreUnavailable`.
        """
        unclear = []
        for channel_id, count in counts:
            if self._has_few(count) and (channel_id in self._listed or channel_id not in self._due):
                unclear.append(channel_id)
            elif channel_id not in self._due or channel_id in self._listed or self._has_few(count):
                self._due.schedule(channel_id, 0.0)
        states = await self._store.public_entries.listed_or_public(unclear)
        for channel_id, (is_listed, is_published) in zip(unclear, states, strict=True):
            if (channel_id in self._due and not is_listed) or (
                channel_id not in self._due and (is_listed or is_published)
            ):
                self._due.schedule(channel_id, 0.0)

    async def register_due(self) -> None:
        """Register this node's channels that are new, changed or due for a refresh, up to ``MAX_DUE`` of them.

        Also check whether the entries of up to ``MAX_CHECKS`` channels are still registered. Raises
        :class:`service.errors.StoreUnavailable`.
        """
        now_s = self._clock.monotonic_s()
        due = [channel_id for _, channel_id in self._due.pop_due(now_s, MAX_DUE)]
        for channel_id in due:
            self._due.schedule(channel_id, now_s + RETRY_INTERVAL_S)
        if due:
            counts = await self._store.channel_index.count(due)
            try:
                await self._register_batch(dict(zip(due, counts, strict=True)), now_s)
            except CellsUnavailable as error:
                log.warning("registering channels for search failed", channels=len(due), error=str(error))
        await self._check_entries(now_s)

    def _has_few(self, count: int) -> bool:
        return count < self._least_subscribers

    async def _register_batch(self, counts: dict[ChannelId, int], now_s: float) -> None:
        states = [state for state in await self._store.channels.states(list(counts)) if state is not None]
        channel_ids = [state.channel.id for state in states]
        described = await asyncio.gather(*(self._describe(state, counts[state.channel.id]) for state in states))
        previous = await self._store.channels.content_names(channel_ids)
        public: set[ChannelId] = set()
        names: list[ContentName] = []
        expires_s = self._clock.wall_s() + NAME_TTL_S
        words: dict[str, str] = {}
        for state, description, before in zip(states, described, previous, strict=True):
            channel_id = state.channel.id
            pairs = frozenset(description.pairs if description else ())
            if pairs != before:
                # First of all: a search that finds the channel by an obsolete pair checks the pairs stored here.
                await self._store.channels.set_content_name(channel_id, state.channel.version, pairs)
            if before - pairs:
                await self._store.channel_directory.withdraw(channel_id, before - pairs, expires_s)
            if description:
                public.add(channel_id)
            if description and (pairs != before or self._refresh_s.get(channel_id, 0.0) <= now_s):
                age_s = self._clock.wall_s() - state.channel.created_s
                weights = attribute_weights(pairs, counts[channel_id], age_s)
                names.append(ContentName(channel_id, description.pairs | weights))
                words |= description.text.registered_words()
        await self._store.channel_directory.register(names, expires_s)
        await self._store.channel_directory.vocabulary.add(words)
        self._refresh_s |= {name.id: now_s + REFRESH_INTERVAL_S for name in names}
        await self._schedule_checks([state.channel for state in states], public, now_s)
        self._schedule(counts, public, now_s)

    async def _schedule_checks(self, channels: Sequence[Channel], public: AbstractSet[ChannelId], now_s: float) -> None:
        """Schedule the daily check of entries for the channels in ``public``.

        Withdraw the entries of channels that are not in ``public``.
        """
        new = [channel for channel in channels if channel.id not in public or channel.id not in self._checks]
        tables = await self._store.public_entries.tables([channel.id for channel in new])
        for channel, table in zip(new, tables, strict=True):
            if channel.id in public:
                wait_s = table.checked_s + CHECK_INTERVAL_S - self._clock.wall_s() if table else 0.0
                self._checks.schedule(channel.id, now_s + max(0.0, wait_s))
            elif table is not None:
                await self._entries.withdraw(channel, table, self._clock.wall_s())

    async def _check_entries(self, now_s: float) -> None:
        due = [channel_id for _, channel_id in self._checks.pop_due(now_s, MAX_CHECKS)]
        if not due:
            return
        for channel_id in due:
            self._checks.schedule(channel_id, now_s + RETRY_INTERVAL_S)
        channels, counts, tables = await asyncio.gather(
            self._store.channels.get_many(due),
            self._store.channel_index.count(due),
            self._store.public_entries.tables(due),
        )
        public = public_channels(channels, counts, self._least_subscribers)
        found = zip(due, tables, strict=True)
        await asyncio.gather(*(self._check(each, public.get(each), table, now_s) for each, table in found))

    async def _check(
        self, channel_id: ChannelId, channel: Channel | None, table: EntryTable | None, now_s: float
    ) -> None:
        """Renew the registrations of a channel's entries that would otherwise expire.

        - ``channel`` is None if the channel is not public. Its entries are then no longer checked.
        - ``table`` lists the channel's registered entries; None if there is no table.
        - ``now_s`` is the monotonic time in seconds.
        """
        if channel is None:
            self._checks.remove(channel_id)
            return
        try:
            if await self._entries.check(channel, table, self._clock.wall_s()) and channel_id in self._checks:
                self._checks.schedule(channel_id, now_s + CHECK_INTERVAL_S)
        except CellsUnavailable as error:
            log.warning("refreshing entries for search failed", channel=channel_id[:8], error=str(error))

    def _schedule(self, counts: dict[ChannelId, int], public: AbstractSet[ChannelId], now_s: float) -> None:
        """Set the times at which the channels in ``counts`` must be registered again.

        - ``counts`` maps each channel to its number of subscribers.
        - ``public`` contains the channels that are public.
        - ``now_s`` is the monotonic time in seconds.
        """
        for channel_id, count in counts.items():
            if self._due.due_s(channel_id) != now_s + RETRY_INTERVAL_S:
                continue  # it has changed, or was removed, meanwhile
            self._due.remove(channel_id)
            self._listed.discard(channel_id)
            if channel_id not in public:
                self._checks.remove(channel_id)
                self._refresh_s.pop(channel_id, None)
            if channel_id in public:
                self._due.schedule(channel_id, self._refresh_s[channel_id])
                if self._has_few(count):
                    self._listed.add(channel_id)

    async def _describe(self, state: ChannelState, count: int) -> ChannelDescription | None:
        """Return the description with which to register a channel that has ``count`` subscribers.

        Return None if the channel is not public or has moved.
        """
        if state.channel.moved_to or not is_public(state.channel, count, self._least_subscribers):
            return None
        return await read_channel_name(self._store, state, self._clock.wall_s())
