"""Search for channels and entries in the store.

:mod:`service.discovery.search_policy` decides which channels and entries match and are visible.
"""

import asyncio
import time
from collections.abc import Sequence

from service.discovery.av_pairs import Pair
from service.discovery.candidates import Candidates, require_all
from service.discovery.discover import (
    MAX_CANDIDATES,
    NEW,
    WORKING,
    DiscoverAnswer,
    DiscoverCandidate,
    DiscoverOrder,
    arrange_listing,
    discover_pairs,
)
from service.discovery.query import DEFAULT_LIMIT, Query, SearchHit
from service.discovery.search_policy import (
    MAX_NAMES,
    OVERFETCH_FACTORS,
    build_channel_name,
    can_match,
    channel_id_of,
    channel_ids_of,
    matching_channels,
    matching_entry,
    public_channels,
)
from service.feeds.urls import host_of, without_selector
from service.model import Channel, ChannelId
from service.net.sites import site_of
from service.store import Store
from service.store.channels.channel_records import ChannelState
from service.store.directory.matrices import Directory

_OWN_BATCH = 50
"""Subscriptions that are examined at once when a user's private channels are searched."""
_LATEST = 20
"""Number of latest entries from which a channel's name (its attribute-value pairs) is built."""


class Searcher:
    """Searches channels and entries. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, store: Store, min_subscribers: int) -> None:
        """Create a searcher of ``store``; a channel is public if it has at least ``min_subscribers`` subscribers."""
        self._store = store
        self._min_subscribers = min_subscribers

    async def find(self, query: Query) -> list[SearchHit]:
        """Return up to ``query.limit`` public channels or entries that match. Raises :class:`CellsUnavailable`.

        Channels are first looked up in a worker's memory. If too few are found there, the discovery matrices are
        queried.
        """
        hits: list[SearchHit] = []
        if query.about == "channel":
            found = await self._store.directory_lookups.lookup(query.pairs, OVERFETCH_FACTORS[0] * query.limit)
            hits = await self._visible_hits(query, found.names if found else ())
        for factor in OVERFETCH_FACTORS:
            if len(hits) >= query.limit:
                break
            most = min(factor * query.limit, MAX_NAMES)
            if query.about == "channel":
                result = await self._find_channels(query.pairs, most)
            else:
                result = await self._store.entry_directory.find(require_all(query.pairs), (), most)
            hits = await self._visible_hits(query, result.names)
            if result.complete and len(result.found) == result.total:
                break
        return hits[: query.limit]

    async def discover(
        self, order: DiscoverOrder = "popular", language: str = "", topic: str = "", limit: int = DEFAULT_LIMIT
    ) -> DiscoverAnswer:
        """Return up to ``limit`` public channels that work, in this order, of a language or topic if one is given.

        The result depends on nobody's subscriptions other than their numbers. Raises :class:`service.errors.BadQuery`
        if the language or the topic is invalid, and :class:`CellsUnavailable`.
        """
        pairs = discover_pairs(order, language, topic)
        # All new channels but a few work, so that the directory of new ones has enough that do.
        sought = tuple(pair for pair in pairs if pair != WORKING or NEW not in pairs)
        found = await self._store.directory_lookups.lookup(sought, MAX_CANDIDATES)
        cids = list(found.names if found else (await self._find_channels(pairs, MAX_CANDIDATES)).names)
        channels, subscribers, names = await asyncio.gather(
            self._store.channels.get_many(cids),
            self._store.subscriptions.counts(cids),
            self._store.channels.content_names(cids),
        )
        public = public_channels(channels, subscribers, self._min_subscribers)
        listed = [
            DiscoverCandidate(public[cid], count, own)
            for cid, count, own in zip(cids, subscribers, names, strict=True)
            if cid in public
        ]
        return arrange_listing(order, pairs, listed, limit)

    async def _find_channels(self, pairs: Sequence[Pair], most: int) -> Candidates:
        """Return the best ``most`` channels with all these AV-pairs from the matrices, and count the search."""
        result = await self._store.channel_directory.find(require_all(pairs), (), most)
        self._store.directory_lookups.count_search(result.frequencies, most)
        return result

    async def find_own(self, jid: str, query: Query) -> list[SearchHit]:
        """Return up to ``query.limit`` matching private channels to which the user ``jid`` is subscribed.

        Private channels are visible only to their subscribers. If the query is for entries, the result is empty.
        """
        if query.about != "channel":
            return []
        cids = [subscription.channel for subscription in await self._store.subscriptions.of_user(jid)]
        hits: list[SearchHit] = []
        for first in range(0, len(cids), _OWN_BATCH):
            batch = cids[first : first + _OWN_BATCH]
            public, states = await asyncio.gather(self.filter_public(batch), self._store.channels.states(batch))
            now_s = time.time()
            private = [
                state
                for state in states
                if state is not None
                and not state.channel.moved_to
                and state.channel.id not in public
                and can_match(query, state.channel, _domain(state.channel), state.updates.interval_s(now_s))
            ]
            names = await asyncio.gather(*(read_channel_name(self._store, state, now_s) for state in private))
            matching = zip(private, names, strict=True)
            hits += [SearchHit(state.channel, own=True) for state, name in matching if query.matches(name)]
            if len(hits) >= query.limit:
                break
        return hits[: query.limit]

    async def filter_public(self, cids: Sequence[ChannelId]) -> dict[ChannelId, Channel]:
        """Return the channels among ``cids`` that are public, by id."""
        channels = await self._store.channels.get_many(cids)
        return public_channels(channels, await self._store.subscriptions.counts(list(cids)), self._min_subscribers)

    async def _visible_hits(self, query: Query, names: Sequence[str]) -> list[SearchHit]:
        """Return the channels or entries with these directory names that are public and still match the query."""
        cids = channel_ids_of(names)
        if not cids:
            return []
        if query.about == "entry":
            public = await self.filter_public(cids)
            entries = await self._store.public_entries.read(names, time.time())
            return [
                hit
                for name in dict.fromkeys(names)
                if name in entries and (channel := public.get(channel_id_of(name)))
                for hit in matching_entry(query, channel, entries[name].entry, _domain(channel))
            ]
        public, current_names = await asyncio.gather(self.filter_public(cids), self._store.channels.content_names(cids))
        return matching_channels(query, public, dict(zip(cids, current_names, strict=True)))


def directory_of(store: Store, query: Query) -> Directory:
    """Return the directory that a query searches: the directory of entries or that of channels."""
    return store.entry_directory if query.about == "entry" else store.channel_directory


async def read_channel_name(store: Store, state: ChannelState, now_s: float) -> frozenset[Pair]:
    """Return a channel's content name: the attribute-value pairs that describe the channel, public or not.

    ``now_s`` is Unix time. Raises :class:`service.errors.StoreUnavailable`.
    """
    channel = state.channel
    latest, (metadata,) = await asyncio.gather(
        store.channels.latest(channel.id, _LATEST), store.channels.feed_metadata([channel.id])
    )
    return build_channel_name(channel, latest, metadata, _domain(channel), state.updates.interval_s(now_s), now_s=now_s)


def _domain(channel: Channel) -> str:
    return site_of(host_of(without_selector(channel.url)))
