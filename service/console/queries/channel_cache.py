"""In-memory cache of all channels, which the console's lists use for searching and sorting.

Redis stores every channel under a separate key, without an index for searching or sorting. The console therefore reads
all channels once and then follows changes. At every refresh, it compares the sizes of the channel registry's 256
buckets to find new and removed channels. In the background, it reads subscriber counts and other changes again and
again, with pauses, so that reading takes only a small share of the time. The cache decides only which channels are
displayed and in which order; pages read the displayed channels from the store.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

from service.asyncio_tasks import cancel_and_wait
from service.console.queries.channel_rows import ChannelRow, State, channel_state, make_row
from service.console.queries.overdue_channels import OverdueChannels
from service.errors import CoronetError
from service.feeds.canonical_urls import host_of
from service.model import ChannelId
from service.net.sites_and_networks import host_and_parent_domains, site_of
from service.observability.metrics import CHANNELS, SUBSCRIPTIONS, UNPOLLED_CHANNELS
from service.store import Store
from service.store.client.keys import REGISTRY_BUCKETS
from service.store.subscriptions.keyspace_store import channel_prefix

_BATCH_SIZE = 250
_MIN_INTERVAL_S = 2.0
_TIME_SHARE = 0.05
"""Fraction of the time that is spent on reading cached channels again."""
_REFRESH_TIMEOUT_S = 3.0
_BACKGROUND_INTERVAL_S = 300.0
"""Interval of refreshes while nobody requests pages, so that the metric of overdue channels stays up to date."""


log = structlog.get_logger(__name__)


class ChannelCache:
    """A cache in memory of the fields by which channels are searched and sorted.

    ``rows`` maps the ids of channels to these fields. :meth:`refresh` updates them.
    """

    def __init__(self, store: Store, default_interval_s: float) -> None:
        """Create an empty cache. ``default_interval_s`` is assumed for channels without a recorded poll interval."""
        self.rows: dict[ChannelId, ChannelRow] = {}
        self.overdue: tuple[ChannelId, ...] = ()
        """Channels that should be polled but have not been for three poll intervals."""
        self._store = store
        self.membership_version = 0
        """Increases when channels are added or removed."""
        self._overdue = OverdueChannels(default_interval_s)
        self._counts: Counter[bytes] = Counter()
        self._bucket_sizes: list[int] = []
        self._background_task: asyncio.Task[None] | None = None
        self._refresh_task: asyncio.Task[None] | None = None
        self._reread_task: asyncio.Task[None] | None = None
        self._counted_s = self._reread_s = float("-inf")
        self._count_took_s = 0.0
        self._blocked_names: frozenset[str] = frozenset()
        self._blocked_sites: frozenset[str] = frozenset()

    def subscribers(self, cid: ChannelId) -> int:
        """Return the number of subscribers of the channel with the id ``cid``."""
        return self._counts.get(channel_prefix(cid), 0)

    def is_blocked(self, row: ChannelRow) -> bool:
        """Return whether an admin has blocked the channel's host or a parent domain of the host."""
        if row.site not in self._blocked_sites:
            return False
        return any(
            name in self._blocked_names
            for name in host_and_parent_domains(host_of(row.search_text.rpartition("\n")[2]))
        )

    def state(self, row: ChannelRow, now_s: float) -> State:
        """Return the state of a channel at the Unix time ``now_s``."""
        subscribers = 0 if row.listed else self.subscribers(row.id)  # not needed: a listed channel is never idle
        return channel_state(row, subscribers, now_s, is_blocked=self.is_blocked(row))

    @property
    def subscriptions(self) -> int:
        """The total number of subscriptions to all channels."""
        return self._counts.total()

    async def refresh(self) -> None:
        """Update the cache from the store.

        If this takes longer than ``_REFRESH_TIMEOUT_S``, the method returns, and reading continues in the background.
        Raises :class:`service.errors.StoreUnavailable` if the store does not respond.
        """
        if self._refresh_task is None or self._refresh_task.done():
            self._refresh_task = _start_reading(self._refresh())
        done, _ = await asyncio.wait({self._refresh_task}, timeout=_REFRESH_TIMEOUT_S)
        for task in done:
            task.result()

    def start(self) -> None:
        """Start refreshing the cache periodically in the background."""
        self._background_task = asyncio.create_task(self._refresh_periodically())

    async def _refresh_periodically(self) -> None:
        while True:
            await asyncio.sleep(_BACKGROUND_INTERVAL_S)
            try:
                await self.refresh()
            except CoronetError as error:
                log.warning("channel cache refresh failed, will retry", error=str(error))

    async def close(self) -> None:
        """Stop reading channels, including in the background."""
        tasks = (self._background_task, self._refresh_task, self._reread_task)
        await cancel_and_wait(*(task for task in tasks if task is not None))

    async def _refresh(self) -> None:
        removed, added = await self._changed_membership()
        for cid in removed:
            self._drop(cid)
        await self.reload(added)
        self._blocked_names = frozenset(await self._store.blocked_hosts.all())
        self._blocked_sites = frozenset(map(site_of, self._blocked_names))
        now_s = time.monotonic()
        if now_s - self._counted_s > max(_MIN_INTERVAL_S, self._count_took_s / _TIME_SHARE):
            self._counts = await self._store.keyspaces.count_all()
            self._counted_s = time.monotonic()
            self._count_took_s = self._counted_s - now_s
        await self._find_overdue()
        if (self._reread_task is None or self._reread_task.done()) and now_s - self._reread_s > _MIN_INTERVAL_S:
            self._reread_task = _start_reading(self._reread_all())

    async def _changed_membership(self) -> tuple[list[ChannelId], list[ChannelId]]:
        """Return (removed, added): the ids of the channels removed and added since the last refresh.

        The channel registry consists of buckets of ids. Only buckets whose size has changed are read.
        """
        sizes = await self._store.channels.bucket_sizes(REGISTRY_BUCKETS)
        before = self._bucket_sizes or [0] * len(sizes)
        changed = [bucket for bucket, was, size in zip(REGISTRY_BUCKETS, before, sizes, strict=True) if was != size]
        if not changed:
            return [], []
        registered = dict.fromkeys(await self._store.channels.ids_in_buckets(changed))
        self._bucket_sizes = sizes
        removed = [cid for cid in self.rows if cid[:2] in changed and cid not in registered]
        return removed, [cid for cid in registered if cid not in self.rows]

    async def _reread_all(self) -> None:
        """Read all channels again, pausing so that reading takes up only the fraction ``_TIME_SHARE`` of the time."""
        ids = list(self.rows)
        for start in range(0, len(ids), _BATCH_SIZE):
            started_s = time.monotonic()
            await self.reload(ids[start : start + _BATCH_SIZE])
            await asyncio.sleep((time.monotonic() - started_s) / _TIME_SHARE if len(ids) > _BATCH_SIZE else 0)
        self._reread_s = time.monotonic()
        await self._find_overdue()

    async def _find_overdue(self) -> None:
        overdue: list[ChannelId] = []
        if self._overdue and (nodes := await self._store.ring.nodes()):
            overdue = self._overdue.find(min(node.joined_s for node in nodes))
        rows = [row for cid in overdue if not self.is_blocked(row := self.rows[cid])]
        self.overdue = tuple(row.id for row in rows if row.listed or self.subscribers(row.id))
        UNPOLLED_CHANNELS.set(len(self.overdue))
        self._count_states()

    def _count_states(self) -> None:
        now_s, counts = time.time(), Counter({"active": 0, "failing": 0, "paused": 0, "blocked": 0})
        for row in self.rows.values():
            if self.is_blocked(row):
                counts["blocked"] += 1
            elif row.paused_until_s > now_s:
                counts["paused"] += 1
            else:
                counts["failing" if row.failing_since_s else "active"] += 1
        for state, count in counts.items():
            CHANNELS.labels(state).set(count)
        SUBSCRIPTIONS.set(self.subscriptions)

    async def reload(self, ids: Sequence[ChannelId]) -> None:
        """Read the channels with these ids from the store into ``rows``.

        Raises :class:`service.errors.StoreUnavailable` if the store does not respond.
        """
        for start in range(0, len(ids), _BATCH_SIZE):
            now_s = time.time()
            batch = ids[start : start + _BATCH_SIZE]
            for cid, found in zip(batch, await self._store.admin_settings.read(batch), strict=True):
                if found is None:
                    # Ids are registered before their channels are created; a crash in between leaves such an id.
                    # The bucket counts as changed, so that the next refresh reads it again.
                    if self._bucket_sizes:
                        self._bucket_sizes[int(cid[:2], 16)] = -1
                    self._drop(cid)
                    continue
                row = make_row(found, now_s)
                self._overdue.check(found, now_s, is_blocked=self.is_blocked(row))
                if row != self.rows.get(cid):
                    self.membership_version += cid not in self.rows
                    self.rows[cid] = row

    def _drop(self, cid: ChannelId) -> None:
        self._overdue.discard(cid)
        if self.rows.pop(cid, None) is not None:
            self.membership_version += 1


def _start_reading(reading: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run ``reading`` in a new task; return the task.

    An exception of the task is not logged, because the next refresh reads the channels again.
    """
    task = asyncio.create_task(reading)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
