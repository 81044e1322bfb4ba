"""In-memory cache of all channels, and the search over it for the console's lists, filters and sort orders.

Redis stores every channel under a separate key, without an index for searching or sorting. The console therefore reads
all channels once and then follows changes. New and removed channels are found at every refresh, by comparing the sizes
of the channel registry's 256 buckets. Subscriber counts and other changes are read repeatedly, with pauses, so that
reading takes only a small share of the time. The cache decides only which channels are displayed and in which order;
pages read the displayed channels from the store.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from math import inf
from sys import intern
from typing import Annotated, Any, Final, Literal

import msgspec
import structlog
from cachetools import TTLCache

from service.corona.polling_limits import PollingLimits
from service.corona.weekly_rhythm import publishing_clock
from service.errors import CoronetError
from service.feeds.urls import host_of
from service.model import ChannelId
from service.net.sites import host_and_parent_domains, site_of
from service.observability.metrics import CHANNELS, SUBSCRIPTIONS, UNPOLLED_CHANNELS
from service.store import Store
from service.store.channels.admin_settings import AdministeredChannel
from service.store.client.keys import REGISTRY_BUCKETS
from service.store.subscriptions.keyspaces import channel_prefix
from service.tasks import cancel_and_wait

_BATCH_SIZE = 250
_MIN_INTERVAL_S = 2.0
_TIME_SHARE = 0.05
"""Fraction of the time that is spent on reading cached channels again."""
_REFRESH_TIMEOUT_S = 3.0
_BACKGROUND_INTERVAL_S = 300.0
"""Interval of refreshes while nobody requests pages, so that the metric of unpolled channels stays up to date."""
_MISSED_INTERVALS = 3
_MIN_SILENCE_S = 15.0
"""A shorter time without a poll is not reported: other workers take over a dead worker's channels within two leases."""

State = Literal["polled", "failing", "paused", "blocked", "idle", "moved"]
"""``failing``: the last poll failed. ``idle``: not polled, because it has no subscribers and is not listed.
``paused``: paused by an admin. ``blocked``: an admin has blocked its host. ``moved``: replaced by another channel.
"""

_ORDER_TTL_S: Final = 5.0


log = structlog.get_logger(__name__)


class ChannelRow(msgspec.Struct, frozen=True, gc=False):
    """The fields by which lists search and sort a channel, except its number of subscribers.

    ``search_text`` is the case-folded title and URL, separated by a newline. Times are Unix seconds; 0 means never.
    """

    id: ChannelId
    search_text: str
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
    limits: PollingLimits
    rhythm: bytes


_SORT_KEYS: Final[Mapping[str, Callable[["ChannelCache", ChannelRow], Any]]] = {
    "id": lambda _, row: row.id,
    "title": lambda _, row: row.search_text,
    "subscribers": lambda cache, row: -cache.subscribers(row.id),
    "news": lambda _, row: row.update_interval_s,
    "version": lambda _, row: -row.version,
    "site": lambda _, row: row.site,
    "failing": lambda _, row: row.failing_since_s or inf,
    "added": lambda _, row: -row.created_s,
}
"""Sort keys; channels with equal keys are sorted by title."""


class ChannelQuery(msgspec.Struct, frozen=True):
    """A search for channels, and the order of the results.

    ``text`` is searched for in titles and URLs, ignoring case. The other conditions are the state, the tag and the
    site. A condition of "" matches every channel. A ``sort`` order with a leading ``-`` is reversed. In a URL, the text
    is the field ``q``.
    """

    text: str = msgspec.field(name="q", default="")
    state: State | Literal[""] = ""
    tag: str = ""
    site: str = ""
    sort: Annotated[str, msgspec.Meta(pattern=f"^-?({'|'.join(_SORT_KEYS)})$")] = "id"


def channel_state(row: ChannelRow, subscribers: int, now_s: float, *, is_blocked: bool) -> State:
    """Return the state of a channel at the Unix time ``now_s``.

    ``subscribers`` is the channel's number of subscribers. ``is_blocked`` says whether its host is blocked.
    """
    if row.moved:
        return "moved"
    if is_blocked:
        return "blocked"
    if row.paused_until_s > now_s:
        return "paused"
    if not (subscribers or row.listed):
        return "idle"
    return "failing" if row.failing_since_s else "polled"


class ChannelCache:
    """The searchable fields of all channels, in ``rows`` by channel id. :meth:`refresh` updates them."""

    def __init__(self, store: Store, default_interval_s: float) -> None:
        """Create an empty cache. ``default_interval_s`` is assumed for channels without a recorded poll interval."""
        self.rows: dict[ChannelId, ChannelRow] = {}
        self.unpolled: tuple[ChannelId, ...] = ()
        """Channels that should be polled but have not been for three poll intervals."""
        self._store = store
        self._membership_version = 0
        """Increases when channels are added or removed."""
        self._orders = TTLCache[tuple[str, int], list[ChannelId]](len(_SORT_KEYS), _ORDER_TTL_S)
        self._default_interval_s = default_interval_s
        self._overdue: dict[ChannelId, float] = {}
        """The channels that had not been polled for too long when they were read, with the time by which they should
        have been polled (Unix s).
        """
        self._last_blocked_s: dict[ChannelId, float] = {}
        """When a channel's host was last seen to be blocked (Unix s)."""
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
        """Return the number of subscribers of the channel ``cid``."""
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
        """The number of all subscriptions to all channels."""
        return self._counts.total()

    def find(self, query: ChannelQuery) -> Sequence[ChannelId]:
        """Return the ids of all channels that match ``query``, in its sort order."""
        order = self._sorted_ids(query.sort.removeprefix("-"))
        ids: Sequence[ChannelId] = order[::-1] if query.sort.startswith("-") else order
        rows, text, now_s = self.rows, query.text.casefold().strip(), time.time()
        if text:
            ids = [cid for cid in ids if text in rows[cid].search_text]
        if query.site:
            ids = [cid for cid in ids if rows[cid].site == query.site]
        if query.tag:
            ids = [cid for cid in ids if query.tag in rows[cid].tags]
        if query.state:
            ids = [cid for cid in ids if self.state(rows[cid], now_s) == query.state]
        return ids

    def tags(self) -> Sequence[str]:
        """Return all tags in use, sorted."""
        return sorted({tag for row in self.rows.values() for tag in row.tags})

    def _sorted_ids(self, sort: str) -> list[ChannelId]:
        order = sort, self._membership_version
        ids = self._orders.get(order)
        if ids is None:
            start = self.rows if sort in {"id", "title"} else self._sorted_ids("title")
            ids = sorted(start, key=lambda cid: _SORT_KEYS[sort](self, self.rows[cid]))
            self._orders[order] = ids
        return ids

    async def refresh(self) -> None:
        """Update the cache from the store.

        If this takes longer than ``_REFRESH_TIMEOUT_S``, the method returns, and reading continues in the background.
        Raises :class:`service.errors.StoreUnavailable`.
        """
        if self._refresh_task is None or self._refresh_task.done():
            self._refresh_task = _start_reading(self._refresh())
        done, _ = await asyncio.wait({self._refresh_task}, timeout=_REFRESH_TIMEOUT_S)
        for task in done:
            task.result()

    def start(self) -> None:
        """Start refreshing in the background."""
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
        await self._find_unpolled()
        if (self._reread_task is None or self._reread_task.done()) and now_s - self._reread_s > _MIN_INTERVAL_S:
            self._reread_task = _start_reading(self._reread_all())

    async def _changed_membership(self) -> tuple[list[ChannelId], list[ChannelId]]:
        """Return the ids of removed channels and the ids of added channels.

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
        """Read all channels again, with pauses so that reading takes only ``_TIME_SHARE`` of the time."""
        ids = list(self.rows)
        for start in range(0, len(ids), _BATCH_SIZE):
            started_s = time.monotonic()
            await self.reload(ids[start : start + _BATCH_SIZE])
            await asyncio.sleep((time.monotonic() - started_s) / _TIME_SHARE if len(ids) > _BATCH_SIZE else 0)
        self._reread_s = time.monotonic()
        await self._find_unpolled()

    async def _find_unpolled(self) -> None:
        overdue: list[ChannelId] = []
        if self._overdue and (nodes := await self._store.ring.nodes()):
            # A fleet that has just started has not had the time to poll.
            fleet_started_s = min(node.joined_s for node in nodes)
            overdue = [cid for cid, due_s in self._overdue.items() if due_s > fleet_started_s]
        rows = [row for cid in overdue if not self.is_blocked(row := self.rows[cid])]
        self.unpolled = tuple(row.id for row in rows if row.listed or self.subscribers(row.id))
        UNPOLLED_CHANNELS.set(len(self.unpolled))
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

    def _check_overdue(self, found: AdministeredChannel, row: ChannelRow, now_s: float) -> None:
        """Record whether the channel ``found``, which was read at ``now_s`` (Unix s), is overdue for a poll.

        ``row`` has the channel's searchable fields.
        """
        if self.is_blocked(row):
            self._last_blocked_s[row.id] = now_s
        allowed_since_s = self._last_blocked_s.get(row.id, 0.0)
        if allowed_since_s < found.polled_s:
            self._last_blocked_s.pop(row.id, None)
        silence_s = max_silence_s(found, self._default_interval_s)
        if now_s - max(allowed_since_s, poll_due_since_s(found)) > silence_s:
            self._overdue[row.id] = now_s - silence_s
        else:
            self._overdue.pop(row.id, None)

    async def reload(self, ids: Sequence[ChannelId]) -> None:
        """Read the channels ``ids`` from the store into ``rows``. Raises :class:`service.errors.StoreUnavailable`."""
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
                self._check_overdue(found, row, now_s)
                if row != self.rows.get(cid):
                    self._membership_version += cid not in self.rows
                    self.rows[cid] = row

    def _drop(self, cid: ChannelId) -> None:
        self._overdue.pop(cid, None)
        self._last_blocked_s.pop(cid, None)
        if self.rows.pop(cid, None) is not None:
            self._membership_version += 1


def _start_reading(reading: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run ``reading`` in a new task; return the task. Its exception is not logged, because the next refresh retries."""
    task = asyncio.create_task(reading)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def max_silence_s(found: AdministeredChannel, default_interval_s: float) -> float:
    """Return the seconds without a poll after which the channel ``found`` is overdue; infinity if it is not polled.

    ``default_interval_s`` is assumed as the poll interval if none is recorded.
    """
    channel = found.channel
    if channel.dormant or channel.moved_to or channel.condition:
        return inf
    interval_s = found.poll_rate.interval_s if found.poll_rate else default_interval_s
    return max(_MISSED_INTERVALS * interval_s, _MIN_SILENCE_S) if interval_s > 0 else inf


def poll_due_since_s(found: AdministeredChannel) -> float:
    """Return the Unix time from which the poll interval until the next poll of the channel ``found`` is counted.

    This is the latest of the channel's creation, its last poll, the end of a pause by its publisher or an admin, and
    the last change of its poll interval. The store has these times even if the worker that owns the channel is dead.
    """
    changed_s = found.poll_rate.since_s if found.poll_rate else 0.0
    return max(found.channel.created_s, found.polled_s, found.no_poll_before_s, found.paused_until_s, changed_s)


def make_row(found: AdministeredChannel, now_s: float) -> ChannelRow:
    """Return the searchable fields of the channel ``found``, which was read at ``now_s`` (Unix s)."""
    channel = found.channel
    return ChannelRow(
        id=channel.id,
        search_text=f"{channel.title or channel.url}\n{channel.url}".casefold(),
        site=intern(site_of(host_of(channel.url))),
        kind=channel.kind,
        listed=channel.listed,
        private=channel.private,
        condition=channel.condition,
        moved=bool(channel.moved_to),
        version=channel.version,
        created_s=channel.created_s,
        failing_since_s=found.failing_since_s or 0.0,
        # The estimate grows steadily while nothing is published; rounding keeps the row from changing all the time.
        update_interval_s=float(f"{found.updates.interval_s(now_s):.2g}"),
        paused_until_s=found.paused_until_s,
        tags=tuple(map(intern, found.tags)),
        limits=found.limits.without_past_pause(now_s),
        rhythm=found.updates.rhythm if publishing_clock(found.updates.rhythm) else b"",
    )
