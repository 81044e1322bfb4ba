"""Fan-out: queues each version (a numbered set of changes) for all its recipients. It can be resumed at any point.

A fan-out takes three steps:

1. The version is queued for the channel's subscribers, page by page.
2. If the channel is public, new entries are registered in the directory and matched with saved searches (``watch``).
3. If the channel is public, the PubSub publisher is notified.

The position after the last queued page, the *cursor*, is stored with the channel. Only the owner with the latest epoch
(fencing token) can write the cursor. A page that is repeated after a crash queues nothing twice (guarantee I2), so a
crash costs at most the work for one page.

If a channel has many subscribers, its owner divides them into *units*, and asks other workers to help
(:mod:`service.store.delivery.fanout_units`). The owner works on units too, and completes the units of workers that have
died. The owner begins the next version only when all units are finished, so that each user receives the versions in
order.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Final

import structlog

from service.discovery.queries.saved_searches import SearchableEntry
from service.errors import CellsUnavailable
from service.feeds.entries.duplicate_articles import hash_version
from service.feeds.entries.version_parts import VersionParts
from service.model import ChannelId, Delta, NodeId, NodeInfo
from service.observability.tracing import TRACING
from service.overlay.ring import RingView
from service.search.entry_registration import EntryRegistrar, pairs_of
from service.search.searcher import Searcher
from service.store import Store
from service.store.channels.public_entries import entry_positions
from service.store.delivery.fanout_units import DIVIDED, ClaimedUnit
from workers.ownership.saved_search_alerts import SavedSearchAlerts

PAGE_SIZE: Final = 500
DIVIDE_FROM: Final = 20_000
"""Number of subscribers from which a fan-out is divided into units. A fan-out to this many subscribers takes one worker
0.4 s of processor time."""
UNIT_SIZE: Final = 4_000
"""Maximum mean number of subscribers per unit. The number of units is the smallest power of two for which the mean does
not exceed this maximum. Units of half this size would take 5 % more processor time in all."""
UNITS_PER_WORKER: Final = 2
"""Minimum number of units per participating worker, so that all workers end at about the same time."""
MAX_HELPERS: Final = 3
"""Maximum number of helpers of one fan-out. Redis uses as much processor time for a fan-out as a worker does, so more
helpers would hardly speed it up."""
_WAIT_S: Final = 0.1
"""Interval at which the units of other workers are checked while no unit is left to claim."""

_log = structlog.get_logger(__name__)


Invite = Callable[[ChannelId, int], Awaitable[None]]
"""Asks up to a given number of other workers to call :meth:`FanOut.help` for a channel."""


async def _invite_nobody(_channel_id: ChannelId, _count: int) -> None:
    pass


def choose_helpers(ring: RingView, channel_id: ChannelId, owner: NodeInfo, count: int) -> list[NodeId]:
    """Return up to ``count`` nodes that can help ``owner`` to queue a channel's changes for its subscribers.

    These are the nodes nearest to the channel, at most one in each process and none in the owner's process.
    """
    by_id = {node.id: node for node in ring.nodes}
    processes = {owner.process or owner.id: owner.id}
    for node_id in ring.nearest(channel_id, len(by_id)):
        processes.setdefault(by_id[node_id].process or node_id, node_id)
    return [node_id for node_id in processes.values() if node_id != owner.id][:count]


class FanOut:
    """Queues new versions of one node's channels for their recipients. A version is a numbered set of changes.

    The recipients are the subscribers and, if the channel is public, the owners of saved searches that match new
    entries. The bot that publishes public channels on PubSub is notified. If a method raises
    :class:`service.errors.StoreUnavailable`, calling it again continues the work.
    """

    def __init__(self, store: Store, least_subscribers: int, invite: Invite = _invite_nobody) -> None:
        """Create an object that runs the fan-outs (deliveries to all subscribers) of one node.

        - ``least_subscribers``: how many subscribers make a channel public.
        - ``invite``: called to ask other workers for help. The work is completed even if nobody helps.
        """
        self._store = store
        self._invite = invite
        self._search = Searcher(store, least_subscribers)
        self._entries = EntryRegistrar(store)
        self._alerts = SavedSearchAlerts(store)
        self._helped: set[ChannelId] = set()

    async def run(self, channel_id: ChannelId, epoch: int) -> bool:
        """Queue the versions of a channel that are not queued yet, for all recipients and in order (guarantee I4).

        ``epoch`` is the channel's fencing token, which each new owner increments. Return False if another node now owns
        the channel.
        """
        (state,) = await self._store.channels.states([channel_id])
        if state is None or state.epoch != epoch:
            return False
        cursor = state.cursor
        for version in range(state.fanned_version + 1, state.channel.version + 1):
            if not await self._fan_out_version(channel_id, epoch, version, cursor):
                return False
            cursor = ""
        return True

    async def help(self, channel_id: ChannelId) -> None:
        """Help the owner of a channel to queue a version for all subscribers.

        Claim one part of the subscribers after another, and return when no part is left.
        """
        if channel_id in self._helped:
            return
        self._helped.add(channel_id)
        try:
            delta: Delta | None = None
            while isinstance(unit := await self._store.fanout_units.claim(channel_id), ClaimedUnit):
                if delta is None or delta.version != unit.version:
                    delta = await self._store.channels.delta(channel_id, unit.version)
                if delta is None:
                    return
                await self._queue_unit(delta, unit)
        finally:
            self._helped.discard(channel_id)

    async def _fan_out_version(self, channel_id: ChannelId, epoch: int, version: int, cursor: str) -> bool:
        store, began_s = self._store, time.time()
        delta = await store.channels.delta(channel_id, version)
        if delta is None or delta.initial:
            return await store.channels.record_fanout(channel_id, epoch, version, "")
        user_count = await self._queue(delta, epoch, cursor)
        if user_count is None:
            return False
        await self._publish_entries(delta)
        await store.pubsub_nodes.notify_changed(channel_id)
        if not await store.channels.record_fanout(channel_id, epoch, version, ""):
            return False
        TRACING.record_step(
            delta.trace_id, "fanned out", began_s, channel=channel_id, version=version, people=user_count
        )
        return True

    async def _queue(self, delta: Delta, epoch: int, cursor: str) -> int | None:
        """Queue a version for all subscribers after the position ``cursor``; return the number of these subscribers.

        ``epoch`` is the owner's fencing token. Return None if another node now owns the channel.
        """
        # A fan-out with many subscribers left after the first page is divided into units.
        store, parts, user_count = self._store, hash_version(delta), 0
        may_divide = True
        while True:
            if cursor == DIVIDED:
                by_units = await self._complete_units(delta)
                if by_units is not None:
                    return user_count + by_units
                cursor, may_divide = "", True  # the store has lost the units, or this node is no longer the owner
            count, cursor = await self._queue_page(delta, parts, cursor)
            user_count += count
            if not cursor:
                return user_count
            units = await self._divide(delta.channel, cursor) if may_divide else {}
            may_divide = False
            if units:
                if not await store.fanout_units.divide(delta.channel, epoch, delta.version, units):
                    return None
                cursor = DIVIDED
            elif not await store.channels.record_fanout(delta.channel, epoch, delta.version, cursor):
                return None

    async def _divide(self, channel_id: ChannelId, cursor: str) -> dict[str, str]:
        """Divide a channel's subscribers into units, which several workers can process at the same time.

        Only the subscribers after the position ``cursor`` are divided. All keys of the subscribers in a unit begin
        with the same prefix, the label of the unit. Return a dict that maps each label to the position at which the
        unit starts. The dict is empty if the channel has too few subscribers to be divided.
        """
        (count,) = await self._store.channel_index.count([channel_id])
        if count < DIVIDE_FROM:
            return {}
        return await self._store.channel_index.divide(channel_id, cursor, ceil(count / UNIT_SIZE))

    async def _complete_units(self, delta: Delta) -> int | None:
        """Queue a version for all units (sets of subscribers), together with other workers.

        Wait until all units are finished, then return the number of users for whom the version was queued. Return None
        if this fan-out is no longer in progress.
        """
        is_first = True
        while unit := await self._store.fanout_units.claim(delta.channel, delta.version):
            if isinstance(unit, ClaimedUnit):
                helper_count = min(MAX_HELPERS, unit.unfinished // UNITS_PER_WORKER - 1)
                if is_first and helper_count > 0:
                    await self._invite(delta.channel, helper_count)
                is_first = False
                await self._queue_unit(delta, unit)
            elif unit.wait_s:
                await asyncio.sleep(min(unit.wait_s, _WAIT_S))
            else:
                return unit.queued
        return None

    async def _queue_unit(self, delta: Delta, unit: ClaimedUnit) -> None:
        """Queue a version for the subscribers in ``unit``, page by page.

        Return when the unit is finished, or when another worker has claimed it.
        """
        parts, cursor, is_claimed = hash_version(delta), unit.cursor, True
        while is_claimed:
            count, cursor = await self._queue_page(delta, parts, cursor, unit.label)
            is_claimed = await self._store.fanout_units.record(delta.channel, unit, cursor, count) and cursor != ""

    async def _queue_page(self, delta: Delta, parts: VersionParts, cursor: str, label: str = "") -> tuple[int, str]:
        """Queue a version for a page of subscribers.

        - ``parts``: the hashes of the articles that the version adds or edits. An article has the same hash in every
          feed, so that nobody needs to receive it twice.
        - ``cursor``: the start of the page.
        - ``label``: the prefix that the keys of the subscribers share; "" means all subscribers.

        Return (count, next_cursor): how many users on the page are still subscribed, and where the next page starts (""
        after the last page).
        """
        store = self._store
        entries, cursor = await store.channel_index.page(delta.channel, cursor, PAGE_SIZE, label)
        user_ids = [user_id for user_id, _ in entries]
        unsubscribed = set(await store.outbox.enqueue(user_ids, delta.channel, delta.version, time.time(), parts))
        if unsubscribed:
            await store.channel_index.remove(delta.channel, [entry for entry in entries if entry[0] in unsubscribed])
        return len(entries) - len(unsubscribed), cursor

    async def _publish_entries(self, delta: Delta) -> None:
        """Register the entries of a public channel in the directory, and queue new entries that match saved searches.

        Repeating the call registers and queues nothing twice.
        """
        positions = entry_positions(delta)
        channel = (await self._search.filter_public([delta.channel])).get(delta.channel) if positions else None
        if channel is None:
            return
        pairs = {position: pairs_of(channel, delta.changes[position].entry) for position in positions}
        try:
            await self._entries.publish(channel, delta, pairs, time.time())
        except CellsUnavailable as error:
            _log.warning("registering new entries for search failed", channel=delta.channel[:8], error=str(error))
        new = [position for position in positions if delta.changes[position].kind == "addition"]
        searchable = [
            SearchableEntry(delta.changes[position].entry, pairs[position], channel.language) for position in new
        ]
        await self._alerts.queue(delta, new, searchable)
