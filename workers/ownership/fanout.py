"""Fan-out: from a versioned delta to the outbox of everybody who gets it, resumable at any point.

First come the channel's subscribers, page by page. The cursor is stored with the channel, fenced by the owner's epoch.
A repeated page queues nothing twice, so a crash costs at most one page. Then entries of public channels are registered
in the directory, and matched with standing queries (``watch``). Last, the publisher of public channels is notified.
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

PAGE: Final = 500
ENTRIES_KEPT_S: Final = 3 * 86_400.0
MOST_ENTRIES: Final = 100
"""Entries of one version that are registered and matched; more at once are not."""
_WORDS_CHARS: Final = 120

_log = structlog.get_logger(__name__)


class FanOut:
    """A worker's fan-out. Every method may raise :class:`service.errors.StoreUnavailable`; call it again then."""

    def __init__(self, store: Store, least_subscribers: int) -> None:
        """``least_subscribers`` make a channel public."""
        self._store = store
        self._search = Searcher(store, least_subscribers)
        self._matcher = SavedSearchMatcher(store.saved_searches)

    async def run(self, cid: ChannelId, epoch: int) -> bool:
        """Queue every version that is not fully fanned out, in order; False if another node owns the channel now."""
        (state,) = await self._store.channels.states([cid])
        if state is None or state.epoch != epoch:
            return False
        cursor = state.cursor
        for version in range(state.fanned + 1, state.channel.version + 1):
            if not await self._version(cid, epoch, version, cursor):
                return False
            cursor = ""
        return True

    async def _version(self, cid: ChannelId, epoch: int, version: int, cursor: str) -> bool:
        store, people, began_s = self._store, 0, time.time()
        delta = await store.channels.delta(cid, version)
        if delta is None or delta.initial:
            return await store.channels.record_fanout(cid, epoch, version, "")
        given = split_version(delta)
        while True:
            entries, cursor = await store.channel_index.page(cid, cursor, PAGE)
            gone = set(await store.outbox.enqueue([uid for uid, _ in entries], cid, version, time.time(), given))
            people += len(entries) - len(gone)
            if gone:
                await store.channel_index.remove(cid, [entry for entry in entries if entry[0] in gone])
            if not cursor:
                await self._publish(delta)
                await store.pubsub_nodes.notify_changed(cid)
            if not await store.channels.record_fanout(cid, epoch, version, cursor):
                return False
            if not cursor:
                TRACING.record_step(delta.trace_id, "fanned out", began_s, channel=cid, version=version, people=people)
                return True

    async def _publish(self, delta: Delta) -> None:
        """Register new entries of a public channel, and queue them for those who watch for them; may be repeated."""
        new = [
            (position, change.entry)
            for position, change in enumerate(delta.changes)
            if change.kind == "addition" and not change.line
        ][:MOST_ENTRIES]
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
            await self._store.entry_directory.register(names, ENTRIES_KEPT_S, changed=False)
        except CellsUnavailable as error:
            _log.warning("entries are not in the directory", channel=delta.channel[:8], why=str(error))
        subjects = [SearchableEntry(entry, own) for (_, entry), own in zip(new, pairs, strict=True)]
        await self._match(delta, [position for position, _ in new], subjects)

    async def _match(self, delta: Delta, positions: Sequence[int], subjects: Sequence[SearchableEntry]) -> None:
        met: dict[SavedSearchId, list[int]] = {}
        for position, watches in zip(positions, await self._matcher.match(subjects), strict=True):
            for watch in watches:
                met.setdefault(watch, []).append(position)
        hits = []
        for uid, own in (await self._store.saved_searches.by_owner(sorted(met))).items():
            words = ((watch, one_line(format_condition(watch.condition), _WORDS_CHARS)) for watch in own)
            hits.append(
                SavedSearchHit(
                    uid, tuple(MatchedSearch(watch.number, said, tuple(met[watch.id])) for watch, said in words)
                )
            )
        if hits:
            news, changes = split_version(delta).news or (), len(delta.changes)
            await self._store.outbox.enqueue_hits(
                delta.channel, delta.version, time.time(), hits, news=news, changes=changes
            )
