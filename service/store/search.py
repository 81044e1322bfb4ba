"""What people find: the names that the directory has, and of those only what is public now.

A name says what was true when it was registered; shares in workers' memory, and cells, may be behind. So each one that
is shown is looked at again: is its channel still there, and public? Has it, or the entry, still all that was asked for?
What is not is as if it had never been: not shown, and not counted; but for those who follow it themselves.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from service.discovery.grammar import Finding, Query
from service.discovery.names import Traits, entry_pairs
from service.discovery.pairs import Pair
from service.discovery.secrecy import is_public
from service.errors import NoWorker
from service.feeds.urls import host_of, without_selector
from service.model import Channel, ChannelId, Entry
from service.net.sites import site_of
from service.store.channels import Channels
from service.store.directory import Directory, Explained
from service.store.named import may_match, name_of
from service.store.requests import Requests
from service.store.subscriptions import Subscriptions

_SPARE = 2
_MUCH_SPARE = 40
"""As many names are asked for as are wanted, times this: some may not be public any more. Much more, which is rare, if
too many were not."""
_MOST_NAMES = 1_000
_OWN_AT_ONCE = 50


class Search:
    """Find channels and entries. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(
        self,
        names: Directory,
        entries: Directory,
        channels: Channels,
        subscriptions: Subscriptions,
        requests: Requests,
    ) -> None:
        """Search these directories, and before them what workers have in memory."""
        self._requests = requests
        self._names, self._entries = names, entries
        self._channels, self._subscriptions = channels, subscriptions

    async def find(self, query: Query, least_subscribers: int) -> list[Finding]:
        """Return at most as many public channels, or entries, as the query wants. Raises :class:`CellsLost`.

        The memory of any worker is asked first, and the matrices where that has too few.
        """
        findings = await self._shown(query, await self._remembered(query), least_subscribers)
        for spare in (_SPARE, _MUCH_SPARE):
            if len(findings) >= query.limit:
                break
            told = await self.explained(query, spare)
            findings = await self._shown(query, [match.name for match in told.matches], least_subscribers)
            if told.complete:
                break
        return findings[: query.limit]

    async def own(self, jid: str, query: Query, least_subscribers: int) -> list[Finding]:
        """Return at most as many of the channels that a person follows and that are not public; not their entries.

        Nobody else is ever told of these.
        """
        if query.about != "channel":
            return []
        cids = [subscription.channel for subscription in await self._subscriptions.of_user(jid)]
        found: list[Finding] = []
        now_s = time.time()
        for first in range(0, len(cids), _OWN_AT_ONCE):
            some = cids[first : first + _OWN_AT_ONCE]
            public, states = await asyncio.gather(self.public(some, least_subscribers), self._channels.states(some))
            others = [
                state
                for state in states
                if state is not None
                and not state.channel.moved_to
                and state.channel.id not in public
                and may_match(query.pairs, state, now_s)
            ]
            names = await asyncio.gather(*(name_of(self._channels, state, now_s) for state in others))
            matching = zip(others, names, strict=True)
            found += [Finding(state.channel, own=True) for state, name in matching if query.matches(name)]
            if len(found) >= query.limit:
                break
        return found[: query.limit]

    async def _remembered(self, query: Query) -> Sequence[str]:
        """Return names that any one worker has in memory; none if they are too few anyway."""
        if query.about == "channel":
            with suppress(NoWorker):
                found = await self._requests.lookup(query.pairs, _SPARE * query.limit)
                return found if len(found) >= query.limit else ()
        return ()

    async def _shown(self, query: Query, names: Sequence[str], least_subscribers: int) -> list[Finding]:
        """Return what these names stand for, of that what is public and has what is asked for now."""
        cids = list(dict.fromkeys(map(_channel_of, names)))
        if not cids:
            return []
        if query.about == "entry":
            public = await self.public(cids, least_subscribers)
            found = [name for name in names if _channel_of(name) in public]
            entries = zip(found, await asyncio.gather(*map(self._entry, found)), strict=True)
            theirs = [(public[_channel_of(name)], entry) for name, entry in entries if entry is not None]
            return [Finding(channel, entry) for channel, entry in theirs if query.matches(_pairs(channel, entry))]
        public, held = await asyncio.gather(self.public(cids, least_subscribers), self._channels.names(cids))
        return [
            Finding(public[cid])
            for cid, pairs in zip(cids, held, strict=True)
            if cid in public and query.matches(pairs)
        ]

    async def explained(self, query: Query, spare: int = _SPARE) -> Explained:
        """Return ``spare`` times as many names as are wanted, public or not any more, and how they were found."""
        directory = self._entries if query.about == "entry" else self._names
        return await directory.find(query.pairs, min(spare * query.limit, _MOST_NAMES))

    async def public(self, cids: Sequence[ChannelId], least_subscribers: int) -> dict[ChannelId, Channel]:
        """Return those of these channels that are anybody's business."""
        channels = await self._channels.many(cids)
        counts = await self._subscriptions.counts(list(cids))
        return {
            channel.id: channel
            for channel, count in zip(channels, counts, strict=True)
            if channel is not None
            and not channel.moved_to
            and is_public(channel.url, count, listed=channel.listed, least_subscribers=least_subscribers)
        }

    async def _entry(self, name: str) -> Entry | None:
        cid, version, position = name.split("/")
        delta = await self._channels.delta(cid, int(version))
        return delta.changes[int(position)].entry if delta is not None and int(position) < len(delta.changes) else None


def entry_name(cid: ChannelId, version: int, position: int) -> str:
    """Return the id of an entry's name: where in its channel's log it stands."""
    return f"{cid}/{version}/{position}"


def _channel_of(name: str) -> ChannelId:
    return name.partition("/")[0]


def _pairs(channel: Channel, entry: Entry) -> frozenset[Pair]:
    domain = site_of(host_of(without_selector(channel.url)))
    return frozenset(entry_pairs(entry, channel, Traits(channel.language), domain))
