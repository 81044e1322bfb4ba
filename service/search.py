"""Search for channels and entries: it reads the store; ``service.discovery.search_policy`` decides what is shown."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from service.discovery.av_pairs import Pair
from service.discovery.query_parser import Query, SearchHit
from service.discovery.search_policy import (
    MAX_NAMES,
    OVERFETCH_FACTORS,
    build_channel_name,
    can_match,
    channel_ids_of,
    matching_channels,
    matching_entry,
    parse_entry_name,
    public_channels,
)
from service.errors import NoWorker
from service.feeds.urls import host_of, without_selector
from service.model import Channel, ChannelId
from service.net.sites import site_of
from service.store import Store
from service.store.channels.channels import ChannelState
from service.store.directory.matrices import Directory

_OWN_AT_ONCE = 50
_LATEST = 20
"""Entries that a channel's name is made of."""


class Searcher:
    """Find channels and entries. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, store: Store, least_subscribers: int) -> None:
        """Search this store, where ``least_subscribers`` make a channel public."""
        self._store = store
        self._least_subscribers = least_subscribers

    async def find(self, query: Query) -> list[SearchHit]:
        """Return at most as many public channels, or entries, as the query wants. Raises :class:`CellsUnavailable`.

        The memory of any worker is asked first, and the matrices where that has too few.
        """
        findings: list[SearchHit] = []
        if query.about == "channel":
            with suppress(NoWorker):
                names = await self._store.worker_requests.lookup(query.pairs, OVERFETCH_FACTORS[0] * query.limit)
                findings = await self._shown(query, names if len(names) >= query.limit else ())
        for spare in OVERFETCH_FACTORS:
            if len(findings) >= query.limit:
                break
            found = await directory_of(self._store, query).find(query.pairs, min(spare * query.limit, MAX_NAMES))
            findings = await self._shown(query, [match.name for match in found.matches])
            if found.complete:
                break
        return findings[: query.limit]

    async def own(self, jid: str, query: Query) -> list[SearchHit]:
        """Return at most as many of the channels that a person follows and that are not public; not their entries.

        Nobody else is ever told of these.
        """
        if query.about != "channel":
            return []
        cids = [subscription.channel for subscription in await self._store.subscriptions.of_user(jid)]
        found: list[SearchHit] = []
        for first in range(0, len(cids), _OWN_AT_ONCE):
            some = cids[first : first + _OWN_AT_ONCE]
            public, states = await asyncio.gather(self.public(some), self._store.channels.states(some))
            now_s = time.time()
            others = [
                state
                for state in states
                if state is not None
                and not state.channel.moved_to
                and state.channel.id not in public
                and can_match(query, state.channel, _domain(state.channel), state.updates.interval_s(now_s))
            ]
            names = await asyncio.gather(*(name_of(self._store, state, now_s) for state in others))
            matching = zip(others, names, strict=True)
            found += [SearchHit(state.channel, own=True) for state, name in matching if query.matches(name)]
            if len(found) >= query.limit:
                break
        return found[: query.limit]

    async def public(self, cids: Sequence[ChannelId]) -> dict[ChannelId, Channel]:
        """Return those of these channels that are anybody's business."""
        channels = await self._store.channels.many(cids)
        return public_channels(channels, await self._store.subscriptions.counts(list(cids)), self._least_subscribers)

    async def _shown(self, query: Query, names: Sequence[str]) -> list[SearchHit]:
        """Return what these names stand for, of that what is public and has what is asked for now."""
        cids = channel_ids_of(names)
        if not cids:
            return []
        if query.about == "entry":
            public = await self.public(cids)
            places = [place for place in map(parse_entry_name, names) if place[0] in public]
            deltas = await asyncio.gather(*(self._store.channels.delta(cid, version) for cid, version, _ in places))
            return [
                finding
                for (cid, _, position), delta in zip(places, deltas, strict=True)
                if delta is not None and position < len(delta.changes)
                for finding in matching_entry(query, public[cid], delta.changes[position].entry, _domain(public[cid]))
            ]
        public, held = await asyncio.gather(self.public(cids), self._store.channels.names(cids))
        return matching_channels(query, public, dict(zip(cids, held, strict=True)))


def directory_of(store: Store, query: Query) -> Directory:
    """Return the directory that has what a query is about."""
    return store.entry_directory if query.about == "entry" else store.channel_directory


async def name_of(store: Store, state: ChannelState, now_s: float) -> frozenset[Pair]:
    """Return a channel's name, public or not; ``now_s`` is Unix time.

    Raises :class:`service.errors.StoreUnavailable`.
    """
    channel = state.channel
    latest, (imprint,) = await asyncio.gather(
        store.channels.latest(channel.id, _LATEST), store.channels.imprints([channel.id])
    )
    return build_channel_name(channel, latest, imprint, _domain(channel), state.updates.interval_s(now_s))


def _domain(channel: Channel) -> str:
    return site_of(host_of(without_selector(channel.url)))
