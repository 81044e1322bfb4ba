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
from math import inf
from sys import intern
from typing import Any, NamedTuple

import msgspec
import structlog

from service.errors import CoronetError
from service.feeds.urls import host_of
from service.metrics import UNPOLLED
from service.model import ChannelId
from service.net.sites import names_over, site_of
from service.store import Store
from service.store.keys import REGISTRY_BUCKETS
from service.store.keyspaces import mark_of
from service.store.remarks import Remarked

_AT_ONCE = 250
_MOST_OFTEN_S = 2.0
_OWN_SHARE = 0.05
"""Of our time, for reading anew what is known already."""
_PATIENCE_S = 3.0
_AT_LEAST_EVERY_S = 300.0
"""Even if nobody visits the console: its metrics are looked at."""
_INTERVALS_MISSED = 3
_SHORTEST_S = 15.0
"""What takes less is not late: when a worker dies, others need two leases to poll its channels."""


log = structlog.get_logger(__name__)


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


class _Late(NamedTuple):
    """A channel that was late when it was read, at ``read_s`` (Unix s): nobody had polled it for ``allowed_s``."""

    read_s: float
    allowed_s: float


class Roster:
    """The rows of all channels, by id. :meth:`look` brings them up to date."""

    def __init__(self, store: Store, usual_interval_s: float) -> None:
        """Read nothing yet. A channel of which no owner has noted how often it is polled counts as usual."""
        self.rows: dict[ChannelId, Row] = {}
        self.complete = False
        """Whether all channels have been read once."""
        self.members = 0
        """Grows when channels come or go."""
        self.edition = 0
        """Grows when anything changes."""
        self.unpolled: tuple[ChannelId, ...] = ()
        """The channels that nobody has polled for three times their interval though somebody wants them polled."""
        self._store = store
        self._usual_interval_s = usual_interval_s
        self._late: dict[ChannelId, _Late] = {}
        self._blocked_s: dict[ChannelId, float] = {}
        """When a channel's host was seen to be blocked last (Unix s)."""
        self._keeping: asyncio.Task[None] | None = None
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

    def start(self) -> None:
        """Look now and then even if nobody else does."""
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_AT_LEAST_EVERY_S)
            try:
                await self.look()
            except CoronetError as error:
                log.warning("channels not read", error=str(error))

    async def close(self) -> None:
        """Stop reading."""
        for task in (self._keeping, self._looking, self._walking):
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
        await self._find_unpolled()
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
        await self._find_unpolled()

    async def _find_unpolled(self) -> None:
        late: list[ChannelId] = []
        if self._late and (nodes := await self._store.ring.view()):
            # A fleet that has just begun has missed nothing yet.
            began_s = min(node.joined_s for node in nodes)
            late = [cid for cid, each in self._late.items() if each.read_s - began_s > each.allowed_s]
        rows = [row for cid in late if not self.blocked(row := self.rows[cid])]
        self.unpolled = tuple(row.id for row in rows if row.listed or self.subscribers(row.id))
        UNPOLLED.set(len(self.unpolled))

    def _judge(self, found: Remarked, row: Row, now_s: float) -> None:
        """Note whether a channel, as it was read now, is late to be polled."""
        if self.blocked(row):
            self._blocked_s[row.id] = now_s
        may_since_s = self._blocked_s.get(row.id, 0.0)
        if may_since_s < found.polled_s:
            self._blocked_s.pop(row.id, None)
        allowed_s = late_after_s(found, self._usual_interval_s)
        if now_s - max(may_since_s, may_be_polled_since_s(found)) > allowed_s:
            self._late[row.id] = _Late(now_s, allowed_s)
        else:
            self._late.pop(row.id, None)

    async def _read(self, ids: Sequence[ChannelId]) -> None:
        for start in range(0, len(ids), _AT_ONCE):
            now_s = time.time()
            some = ids[start : start + _AT_ONCE]
            for cid, found in zip(some, await self._store.remarks.read(some), strict=True):
                if found is None:
                    # A channel is registered before it is made; and what dies in between leaves such an id behind.
                    if self._sizes:
                        self._sizes[int(cid[:2], 16)] = -1
                    self._drop(cid)
                    continue
                row = row_of(found, now_s)
                self._judge(found, row, now_s)
                if row != self.rows.get(cid):
                    self.members += cid not in self.rows
                    self.edition += 1
                    self.rows[cid] = row

    def _drop(self, cid: ChannelId) -> None:
        self._late.pop(cid, None)
        self._blocked_s.pop(cid, None)
        if self.rows.pop(cid, None) is not None:
            self.members += 1
            self.edition += 1


def _started(reading: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begin to read; what goes wrong is for those who wait for it, and the next look finds out as well."""
    task = asyncio.create_task(reading)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def late_after_s(found: Remarked, usual_interval_s: float) -> float:
    """Return for how long a channel may be left unpolled, once it may be polled, before that is a fault."""
    channel = found.channel
    if channel.dormant or channel.moved_to or channel.condition:
        return inf
    interval_s = found.pace.interval_s if found.pace else usual_interval_s
    return max(_INTERVALS_MISSED * interval_s, _SHORTEST_S) if interval_s > 0 else inf


def may_be_polled_since_s(found: Remarked) -> float:
    """Return since when (Unix s) the next poll of a channel may be waited for, as far as the store knows.

    That is since the last poll; but not while its publisher or admins want it left alone, and anew from when its owner
    changed how often it is polled. Its owner need not live for that to be known.
    """
    noted_s = found.pace.since_s if found.pace else 0.0
    return max(found.channel.created_s, found.polled_s, found.no_poll_before_s, found.paused_until_s, noted_s)


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
