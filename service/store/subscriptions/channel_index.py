"""The channel index, which lists the subscribers of each channel and is distributed over servers by CLASH.

The index may contain a user who has just unsubscribed, but never lacks a subscriber. Each user's own list of
subscriptions is authoritative, and the last step of every delivery checks it.

Each entry contains the sequence number (``seq``) of the user's change that wrote it. Only a change with a greater
sequence number replaces the entry. A delayed copy of an old change therefore never undoes a newer one.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from sys import intern

from cachetools import LRUCache

from service.clash.group_search import DepthCache, DepthSearch
from service.clash.key_groups import KeyGroup, KeyLayout, Keyspace
from service.clash.prefix_query import Position, PrefixQuery, ReadDonor, ReadLeaf, Record
from service.clash.table_transitions import Accepted
from service.feeds.canonical_urls import host_of
from service.model import ChannelId, UserId
from service.net.sites_and_networks import site_of
from service.store.channels.registry_changes import record_change
from service.store.client import keys
from service.store.client.redis_client import RedisClient, script_command
from service.store.subscriptions.keyspace_store import KeyspaceStore, channel_prefix, record_id, user_ids

_MAX_CACHED_SITES = 10_000
_PAGE = 500


class ChannelIndex:
    """The subscribers of each channel. The index has one entry per subscription.

    Every method may raise :class:`service.errors.StoreUnavailable` and can then be called again.

    :meth:`add` first writes the entry. Then it increments the channel's counter of new subscribers. This order
    ensures:

    - No subscriber misses a version of the channel (guarantee I1). A version is queued for all subscribers whose
      entries were written before.
    - No version is delivered twice (guarantee I2). Each subscription records the last version that was queued for
      it. At first, this is the channel's version at the time of subscribing.
    - A deleted channel has no subscribers. If the channel is deleted before the counter is incremented,
      :meth:`add` removes the entry and returns False. If it is deleted later, the entry is removed when all
      subscriptions to the channel are ended.
    - A channel with subscribers remains polled. A count of subscribers is ignored if the counter has changed
      since the subscribers were counted.
    """

    def __init__(self, redis: RedisClient, keyspaces: KeyspaceStore, layout: KeyLayout) -> None:
        """Create the index, whose entries are stored in ``keyspaces``. ``layout`` determines the entries' keys."""
        self._redis = redis
        self._keyspaces = keyspaces
        self._layout = layout
        self._sites_known: LRUCache[ChannelId, str] = LRUCache(_MAX_CACHED_SITES)
        self._depths = DepthCache()

    async def add(self, cid: ChannelId, uid: UserId, seq: int) -> bool:
        """Add a subscriber to a channel; if the channel does not exist, add nothing and return False.

        ``seq`` is the sequence number of the user's change. If a user has two entries, the one with the greater ``seq``
        is newer.
        """
        (site,) = await self._sites([cid])
        if site is None:
            return False
        await self._write(site, cid, uid, seq)
        joined, _ = await self._redis.call_many(
            [script_command("channel_count_join", (keys.channel(cid),)), record_change(cid)]
        )
        if not joined:
            await self.remove(cid, [(uid, seq)])
        return bool(joined)

    async def remove(self, cid: ChannelId, entries: Sequence[tuple[UserId, int]]) -> None:
        """Remove subscribers of a channel.

        Each entry is a pair (user id, ``seq``), where ``seq`` is the sequence number of the user's change. An entry is
        kept if a later change of the user has written it again.
        """
        (site,) = await self._sites([cid])
        if site is None:
            return
        await asyncio.gather(*(self._write(site, cid, uid, seq, present=False) for uid, seq in entries))
        await self._redis.call(*record_change(cid))

    async def count(self, cids: Sequence[ChannelId]) -> list[int]:
        """Return how many subscribers each channel has, in order; 0 for a channel that does not exist.

        A count may temporarily be too high, but is never too low.
        """
        counts = await self.count_at_sites(dict.fromkeys(cids, ""))
        return [counts.get(cid, 0) for cid in cids]

    async def count_at_sites(self, sites: Mapping[ChannelId, str]) -> dict[ChannelId, int]:
        """Return how many subscribers each channel has, as :meth:`count` does; omit channels that do not exist.

        ``sites`` maps each channel to the registrable domain that is stored with it. If the domain is "", it is read.
        """
        unknown = [cid for cid, site in sites.items() if not site]
        if unknown:
            read = dict(zip(unknown, await self._sites(unknown), strict=True))
            sites = {cid: known for cid, site in sites.items() if (known := site or read[cid])}
        counts = await self._count_at_leaves(sites)
        others = [cid for cid in sites if cid not in counts]
        if others:  # gathering nothing would still wait for the event loop
            counts |= zip(others, await asyncio.gather(*(self._count(sites[cid], cid) for cid in others)), strict=True)
        return counts

    async def _count_at_leaves(self, sites: Mapping[ChannelId, str]) -> dict[ChannelId, int]:
        """Count the subscribers of each channel, using one round trip.

        ``sites`` maps channels to their registrable domains. The result omits a channel if its subscribers are being
        moved, or if this process does not know where they are stored.
        """
        # A leaf is a key group that is not split. A channel is left out if its leaf is not cached, or is moving to
        # another keyspace.
        at_leaves: dict[KeyGroup, list[bytes]] = {}
        prefixes = {cid: channel_prefix(cid) for cid in sites}
        for cid, site in sites.items():
            leaf = self._depths.leaf_of(self._layout.channel_group(site, cid))
            if leaf is not None:
                at_leaves.setdefault(leaf, []).append(prefixes[cid])
        counts = await self._keyspaces.count_at_leaves(at_leaves)
        return {cid: counts[prefix] for cid, prefix in prefixes.items() if prefix in counts}

    def _search(self, key: int) -> DepthSearch:
        return DepthSearch(key, self._layout.bits, self._keyspaces.map, self._depths)

    async def _count(self, site: str, cid: ChannelId) -> int:
        """Return how many subscribers a channel has. The count may temporarily be too high, but is never too low.

        ``site`` is the channel's registrable domain, which determines where the subscribers are stored.
        """
        # It is too high while key groups move.
        prefix, counts = channel_prefix(cid), dict[Keyspace, int]()
        channel = self._layout.channel_group(site, cid)
        search = self._search(channel.key)
        while True:
            probe = search.probe
            answer, number = await self._keyspaces.count(probe, prefix)
            if isinstance(answer, Accepted) and answer.move is not None:
                # A move to this leaf is in progress: entries may have moved from its donor between the two counts.
                counts[answer.move.donor] = await self._keyspaces.count_in(answer.move.donor, prefix)
                answer, number = await self._keyspaces.count(probe, prefix)
            if isinstance(answer, Accepted):
                # It counts all entries of the channel in this keyspace, so it replaces an earlier reply.
                counts[probe.keyspace] = number
            leaf = search.on_answer(answer)
            if leaf is not None and leaf.group.last >= channel.last:
                return sum(counts.values())
            if leaf is not None:
                search = self._search(leaf.group.last + 1)

    async def divide(self, cid: ChannelId, cursor: str, count: int) -> dict[str, str]:
        """Divide the subscribers of a channel into groups of roughly equal size, which can be read separately.

        ``count`` is the desired number of groups. It is rounded up to a power of two, and limited to the number of
        keys that the channel has. ``cursor`` is the cursor of the page at which reading must continue, or "" for the
        first page. Groups that end before this page are omitted.

        Return a dict that maps the label of each group to the cursor of its first page. Both are arguments for
        :meth:`page`. The dict is empty if the channel does not exist.
        """
        (site,) = await self._sites([cid])
        if site is None:
            return {}
        channel = self._layout.channel_group(site, cid)
        depth = min(channel.depth + (count - 1).bit_length(), channel.bits)
        key, _ = _parse_cursor(cursor) or (channel.key, "")
        starts = range(KeyGroup.containing(key, depth, channel.bits).key, channel.last + 1, 1 << channel.bits - depth)
        groups = [KeyGroup(start, depth, channel.bits) for start in starts]
        return {group.label: cursor if key in group else "" for group in groups}

    async def page(
        self, cid: ChannelId, cursor: str, count: int, label: str = ""
    ) -> tuple[list[tuple[UserId, int]], str]:
        """Return a page of up to ``count`` subscribers of a channel, and the cursor of the next page.

        A subscriber is a pair (user id, ``seq``), where ``seq`` is the sequence number of the user's last change.

        - ``cursor``: where the page begins; "" for the first page. The cursor returned with the last page is "".
        - ``label``: restricts the pages to one group from :meth:`divide`; "" for all subscribers.

        A user who stays subscribed while the caller reads all pages is on at least one of them.
        """
        (site,) = await self._sites([cid])
        if site is None:
            return [], ""
        channel = self._layout.channel_group(site, cid)
        prefix = KeyGroup.from_label(label, channel.bits) if label else channel
        query = PrefixQuery(prefix, self._keyspaces.map, self._depths, count, _parse_cursor(cursor))
        id_prefix = channel_prefix(cid).decode("latin-1")
        found: list[Record] = []
        while query.request is not None and not found:
            found = [record for record in await self._run_query(query, channel) if record.id.startswith(id_prefix)]
        entries = list(zip(user_ids(found), [record.seq for record in found], strict=True))
        return entries, "" if query.request is None else _format_cursor(query.position)

    async def pages(self, cid: ChannelId) -> AsyncIterator[list[tuple[UserId, int]]]:
        """Yield all subscribers of a channel in pages, as pairs (user id, ``seq``).

        ``seq`` is the sequence number of the change with which the user was last added to the channel.
        """
        cursor, is_last = "", False
        while not is_last:
            entries, cursor = await self.page(cid, cursor, _PAGE)
            is_last = not cursor
            yield entries

    async def _sites(self, cids: Sequence[ChannelId]) -> list[str | None]:
        """Return the registrable domain of each channel, in order; None for a channel that does not exist.

        The domain determines where the channel's subscribers are stored.
        """
        # The domain is determined once and stored with the channel, because the public suffix list changes, and entries
        # must not move.
        found = {cid: site for cid in cids if (site := self._sites_known.get(cid)) is not None}
        unknown = [cid for cid in dict.fromkeys(cids) if cid not in found]
        if unknown:
            read = await self._redis.call_many([("HMGET", keys.channel(cid), "site", "url") for cid in unknown])
            held = dict(zip(unknown, read, strict=True))
            new = {cid: site_of(host_of(url.decode())) for cid, (site, url) in held.items() if url and not site}
            decided = await self._redis.call_many(
                [script_command("channel_set_site", (keys.channel(cid),), site) for cid, site in new.items()]
            )
            asked = {cid: site for cid, (site, _) in held.items()} | dict(zip(new, decided, strict=True))
            known = {cid: intern(site.decode()) for cid, site in asked.items() if site}
            self._sites_known.update(known)
            found |= known
        return [found.get(cid) for cid in cids]

    async def _write(self, site: str, cid: ChannelId, uid: UserId, seq: int, *, present: bool = True) -> None:
        record = Record(self._layout.key(site, cid, uid), record_id(cid, uid), seq, present)
        search = self._search(record.key)
        while search.on_answer(await self._keyspaces.write(search.probe, record)) is None:
            pass

    async def _run_query(self, query: PrefixQuery, channel: KeyGroup) -> tuple[Record, ...]:
        """Send the next request of ``query``; return the page of records that it completes, or () if it completes none.

        ``channel`` is the group of keys under which the channel's subscribers are stored. Each returned record counts
        as one delivery in the load measurements.
        """
        request = query.request
        if isinstance(request, ReadDonor):
            query.on_donor_page(request.move, await self._keyspaces.read_donor(request))
        elif isinstance(request, ReadLeaf):
            answer, page = await self._keyspaces.read_leaf(request)
            query.on_leaf_page(answer, page)
            if isinstance(answer, Accepted) and query.records:
                # By channel, not by leaf, so that the load of each half of the leaf is known.
                group = answer.group.intersection(channel) or answer.group
                await self._keyspaces.record_deliveries(request.probe.keyspace, group, len(query.records))
        return query.records


def _format_cursor(position: Position | None) -> str:
    """Return the cursor for a position in the channel index; None stands for the beginning."""
    key, name = position or (0, "")
    return f"{key:x}.{name.encode('latin-1').hex()}"


def _parse_cursor(cursor: str) -> Position | None:
    """Return the position in the channel index that a cursor represents; None stands for the beginning."""
    key, stop, name = cursor.partition(".")
    return (int(key, 16), bytes.fromhex(name).decode("latin-1")) if stop else None
