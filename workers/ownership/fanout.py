"""Fan-out of versions: queues each version for all its recipients, and can be resumed at any point.

First the version is queued for the channel's subscribers, page by page. The cursor, which is the position after the
last page, is stored with the channel and can only be written by the owner with the latest epoch. A repeated page queues
nothing twice (guarantee I2), so a crash costs at most one page. Then new entries of public channels are registered in
the directory and matched with saved searches (``watch``). Last, the PubSub publisher of public channels is notified.
"""

import time
from collections.abc import Sequence
from typing import Final

import structlog

from service.discovery.names import DeclaredMetadata, entry_pairs
from service.discovery.query_parser import format_condition
from service.discovery.saved_searches import SavedSearchId, SearchableEntry
from service.discovery.search_policy import entry_name
from service.errors import CellsUnavailable
from service.feeds.entries.version_parts import split_version
from service.feeds.parsing.html_text import one_line
from service.feeds.urls import host_of, without_selector
from service.model import ChannelId, Delta
from service.net.sites import site_of
from service.observability.tracing import TRACING
from service.search import Searcher
from service.store import Store
from service.store.delivery.outbox import MatchedSearch, SavedSearchHit
from service.store.directory.matrices import ContentName
from service.store.directory.saved_searches import SavedSearchMatcher

PAGE_SIZE: Final = 500
ENTRY_TTL_S: Final = 3 * 86_400.0
MAX_ENTRIES: Final = 100
"""New entries of one version that are registered and matched with saved searches; further ones are not."""
_QUERY_CHARS: Final = 120

_log = structlog.get_logger(__name__)


class FanOut:
    """The fan-outs of one node.

    If a method raises :class:`service.errors.StoreUnavailable`, it can be called again and then continues.
    """

    def __init__(self, store: Store, least_subscribers: int) -> None:
        """Create the fan-outs of one node; channels with at least ``least_subscribers`` subscribers are public."""
        self._store = store
        self._search = Searcher(store, least_subscribers)
        self._matcher = SavedSearchMatcher(store.saved_searches)

    async def run(self, channel_id: ChannelId, epoch: int) -> bool:
        """Fan out, in order (guarantee I4), the versions of a channel that have not been fanned out yet.

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

    async def _fan_out_version(self, channel_id: ChannelId, epoch: int, version: int, cursor: str) -> bool:
        store, user_count, began_s = self._store, 0, time.time()
        delta = await store.channels.delta(channel_id, version)
        if delta is None or delta.initial:
            return await store.channels.record_fanout(channel_id, epoch, version, "")
        parts = split_version(delta)
        while True:
            entries, cursor = await store.channel_index.page(channel_id, cursor, PAGE_SIZE)
            user_ids = [user_id for user_id, _ in entries]
            unsubscribed = set(await store.outbox.enqueue(user_ids, channel_id, version, time.time(), parts))
            user_count += len(entries) - len(unsubscribed)
            if unsubscribed:
                await store.channel_index.remove(channel_id, [entry for entry in entries if entry[0] in unsubscribed])
            if not cursor:
                await self._publish_entries(delta)
                await store.pubsub_nodes.notify_changed(channel_id)
            if not await store.channels.record_fanout(channel_id, epoch, version, cursor):
                return False
            if not cursor:
                TRACING.record_step(
                    delta.trace_id, "fanned out", began_s, channel=channel_id, version=version, people=user_count
                )
                return True

    async def _publish_entries(self, delta: Delta) -> None:
        """Register the new entries of a public channel in the directory, and queue those that match saved searches.

        A repetition registers and queues nothing twice.
        """
        new = [
            (position, change.entry)
            for position, change in enumerate(delta.changes)
            if change.kind == "addition" and not change.line
        ][:MAX_ENTRIES]
        if not new or delta.notice is not None:
            return
        channel = (await self._search.filter_public([delta.channel])).get(delta.channel)
        if channel is None:
            return
        domain = site_of(host_of(without_selector(channel.url)))
        pairs = [entry_pairs(entry, channel, DeclaredMetadata(channel.language), domain) for _, entry in new]
        names = [
            ContentName(entry_name(delta.channel, delta.version, position), 1, frozenset(own))
            for (position, _), own in zip(new, pairs, strict=True)
        ]
        try:
            await self._store.entry_directory.register(names, ENTRY_TTL_S, changed=False)
        except CellsUnavailable as error:
            _log.warning("entry registration failed", channel=delta.channel[:8], reason=str(error))
        searchable = [SearchableEntry(entry, own) for (_, entry), own in zip(new, pairs, strict=True)]
        await self._match(delta, [position for position, _ in new], searchable)

    async def _match(self, delta: Delta, positions: Sequence[int], entries: Sequence[SearchableEntry]) -> None:
        """Queue new entries for the owners of saved searches that the entries match.

        ``positions`` are the positions of ``entries`` in ``delta``, the changes of a version.
        """
        matched_positions: dict[SavedSearchId, list[int]] = {}
        for position, search_ids in zip(positions, await self._matcher.match(entries), strict=True):
            for search_id in search_ids:
                matched_positions.setdefault(search_id, []).append(position)
        hits = []
        for user_id, searches in (await self._store.saved_searches.by_owner(sorted(matched_positions))).items():
            matches = tuple(
                MatchedSearch(
                    search.number,
                    one_line(format_condition(search.condition), _QUERY_CHARS),
                    tuple(matched_positions[search.id]),
                )
                for search in searches
            )
            hits.append(SavedSearchHit(user_id, matches))
        if hits:
            news, changes = split_version(delta).news or (), len(delta.changes)
            await self._store.outbox.enqueue_hits(
                delta.channel, delta.version, time.time(), hits, news=news, changes=changes
            )
