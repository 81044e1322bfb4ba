"""What people find: the names that the directory has, and of those only what is public now.

A name says what was true when it was registered. Whether its channel is still public, and still there, is asked again
for each one that is shown; and what is not is as if it had never been: not shown, and not counted.
"""

from collections.abc import Sequence
from contextlib import suppress

from service.discovery.grammar import Finding, Query
from service.discovery.secrecy import is_public
from service.errors import NoWorker
from service.model import Channel, ChannelId, Entry
from service.store.channels import Channels
from service.store.directory import Directory, Explained
from service.store.requests import Requests
from service.store.subscriptions import Subscriptions

_SPARE = 2
"""As many names are asked for as are wanted, times this: some may not be public any more."""


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
        """Return at most as many public channels, or entries, as the query wants. Raises :class:`CellsLost`."""
        found = await self._named(query)
        cids = list(dict.fromkeys(map(_channel_of, found)))
        public = await self.public(cids, least_subscribers)
        findings = []
        for name in found:
            channel = public.get(_channel_of(name))
            if channel is not None and query.about == "entry":
                entry = await self._entry(name)
                findings += [Finding(channel, entry)] if entry is not None else []
            elif channel is not None:
                findings.append(Finding(channel))
        return findings[: query.limit]

    async def _named(self, query: Query) -> list[str]:
        """Return names from the memory of any worker; the matrices are asked where that has too few."""
        wanted = _SPARE * query.limit
        if query.about == "channel":
            with suppress(NoWorker):
                found = await self._requests.lookup(query.pairs, wanted)
                if len(found) >= wanted:
                    return list(found)
        return [match.name for match in (await self.explained(query)).matches]

    async def explained(self, query: Query) -> Explained:
        """Return the names that the directory has, public or not any more, and how they were found."""
        directory = self._entries if query.about == "entry" else self._names
        return await directory.find(query.pairs, _SPARE * query.limit)

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
