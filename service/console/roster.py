"""All channels in the console's memory, as it lists, searches, sorts and weighs them.

Redis has each channel in a slot of its own and nothing to sort all of them by. So the console reads them all once,
and keeps up: which there are is asked anew each time (256 counts; a bucket whose count has changed is read), how many
subscribe and what else has changed as often as takes up no more than a part of our time. What a page shows of a
channel is read from the store all the same: the roster decides only which are shown, and in which order.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from sys import intern
from typing import Any

import msgspec

from service.feeds.urls import host_of
from service.model import ChannelId
from service.net.sites import names_over, site_of
from service.store import Store
from service.store.keys import REGISTRY_BUCKETS
from service.store.packing import mark_of
from service.store.remarks import Remarked

_AT_ONCE = 250
_MOST_OFTEN_S = 2.0
_OWN_SHARE = 0.05
"""Of our time, for reading anew what is known already."""
_PATIENCE_S = 3.0


class Row(msgspec.Struct, frozen=True, gc=False):
    """What is searched, sorted and weighed of a channel, but for how many subscribe.

    ``folded`` is its title and its URL in small letters; times are Unix seconds, 0 for never.
    """

    id: ChannelId
    folded: str
    site: str
    kind: str
    listed: bool
    private: bool
    condition: str
    moved: bool
    version: int
    created_s: float
    failing_since_s: float
    update_interval_s: float
    paused_until_s: float
    tags: tuple[str, ...]


class Roster:
    """The rows of all channels, by id. :meth:`look` brings them up to date."""

    def __init__(self, store: Store) -> None:
        """Read nothing yet."""
        self.rows: dict[ChannelId, Row] = {}
        self.complete = False
        """Whether all channels have been read once."""
        self.members = 0
        """Grows when channels come or go."""
        self.edition = 0
        """Grows when anything changes."""
        self._store = store
        self._counts: Counter[bytes] = Counter()
        self._sizes: list[int] = []
        self._buckets: dict[str, list[ChannelId]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._walking: asyncio.Task[None] | None = None
        self._counted_s = self._walked_s = float("-inf")
        self._count_took_s = 0.0
        self._blocked: frozenset[str] = frozenset()
        self._blocked_sites: frozenset[str] = frozenset()

    def subscribers(self, cid: ChannelId) -> int:
        """Return how many subscribe to a channel."""
        return self._counts.get(mark_of(cid), 0)

    def blocked(self, row: Row) -> bool:
        """Say whether a channel's host is to be asked for nothing."""
        if row.site not in self._blocked_sites:
            return False
        return any(name in self._blocked for name in names_over(host_of(row.folded.rpartition("\n")[2])))

    @property
    def subscriptions(self) -> int:
        """How many subscriptions there are."""
        return self._counts.total()

    async def look(self, patience_s: float = _PATIENCE_S) -> None:
        """Bring the rows up to date; with more new channels than can be read in that time, go on without waiting.

        Raises :class:`service.errors.StoreUnavailable`.
        """
        if self._looking is None or self._looking.done():
            self._looking = _started(self._look())
        done, _ = await asyncio.wait({self._looking}, timeout=patience_s)
        for task in done:
            task.result()

    async def again(self, ids: Sequence[ChannelId]) -> None:
        """Read these channels anew, of which somebody has just changed something.

        Raises :class:`service.errors.StoreUnavailable`.
        """
        await self._read(ids)

    async def close(self) -> None:
        """Stop reading."""
        for task in (self._looking, self._walking):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    async def _look(self) -> None:
        gone, new = await self._registered()
        for cid in gone:
            self._drop(cid)
        await self._read(new)
        self.complete = True
        self._blocked = frozenset(await self._store.blocks.all())
        self._blocked_sites = frozenset(map(site_of, self._blocked))
        now_s = time.monotonic()
        if now_s - self._counted_s > max(_MOST_OFTEN_S, self._count_took_s / _OWN_SHARE):
            self._counts = await self._store.keyspaces.count_all()
            self._counted_s = time.monotonic()
            self._count_took_s = self._counted_s - now_s
            self.edition += 1
        if (self._walking is None or self._walking.done()) and now_s - self._walked_s > _MOST_OFTEN_S:
            self._walking = _started(self._walk())

    async def _registered(self) -> tuple[set[ChannelId], list[ChannelId]]:
        """Return the channels that are gone, and those that are new, as far as the numbers in buckets tell."""
        sizes = await self._store.channels.bucket_sizes(REGISTRY_BUCKETS)
        before = self._sizes or [0] * len(sizes)
        changed = [bucket for bucket, was, size in zip(REGISTRY_BUCKETS, before, sizes, strict=True) if was != size]
        gone, new = set[ChannelId](), list[ChannelId]()
        found = await self._store.channels.registered(changed) if changed else []
        held: dict[str, list[ChannelId]] = {bucket: [] for bucket in changed}
        for cid in found:
            held[cid[:2]].append(cid)
        for bucket, ids in held.items():
            known = set(self._buckets.get(bucket, ()))
            gone |= known.difference(ids)
            new += [cid for cid in ids if cid not in self.rows]
        self._buckets |= held
        self._sizes = sizes
        return gone, new

    async def _walk(self) -> None:
        """Read all channels anew, at leisure."""
        ids = list(self.rows)
        for start in range(0, len(ids), _AT_ONCE):
            began_s = time.monotonic()
            await self._read(ids[start : start + _AT_ONCE])
            await asyncio.sleep((time.monotonic() - began_s) / _OWN_SHARE if len(ids) > _AT_ONCE else 0)
        self._walked_s = time.monotonic()

    async def _read(self, ids: Sequence[ChannelId]) -> None:
        now_s = time.time()
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            for cid, found in zip(some, await self._store.remarks.read(some), strict=True):
                if found is None:
                    # A channel is registered before it is made; and what dies in between leaves such an id behind.
                    if self._sizes:
                        self._sizes[int(cid[:2], 16)] = -1
                    self._drop(cid)
                elif (row := row_of(found, now_s)) != self.rows.get(cid):
                    self.members += cid not in self.rows
                    self.edition += 1
                    self.rows[cid] = row

    def _drop(self, cid: ChannelId) -> None:
        if self.rows.pop(cid, None) is not None:
            self.members += 1
            self.edition += 1


def _started(reading: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begin to read; what goes wrong is for those who wait for it, and the next look finds out as well."""
    task = asyncio.create_task(reading)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def row_of(found: Remarked, now_s: float) -> Row:
    """Return a channel's row."""
    channel = found.channel
    return Row(
        id=channel.id,
        folded=f"{channel.title or channel.url}\n{channel.url}".casefold(),
        site=intern(site_of(host_of(channel.url))),
        kind=channel.kind,
        listed=channel.listed,
        private=channel.private,
        condition=channel.condition,
        moved=bool(channel.moved_to),
        version=channel.version,
        created_s=channel.created_s,
        failing_since_s=found.failing_since_s or 0.0,
        # Silence makes it longer all the time; so exactly nobody sorts, and weights hardly move.
        update_interval_s=float(f"{found.updates.interval_s(now_s):.2g}"),
        paused_until_s=found.paused_until_s,
        tags=tuple(map(intern, found.tags)),
    )
