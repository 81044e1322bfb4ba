"""A cache of all channels in the console's memory, and the finder that searches and sorts them.

Redis has each channel in a slot of its own and nothing to sort all of them by. So the console reads them all once,
and keeps up: which there are is asked anew each time (256 counts; a bucket whose count has changed is read), how many
subscribe and what else has changed as often as takes up no more than a part of our time. What a page shows of a
channel is read from the store all the same: the roster decides only which are shown, and in which order.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from math import inf
from sys import intern
from typing import Any, Final, Literal, NamedTuple

import msgspec
import structlog

from service.errors import CoronetError, UserError
from service.feeds.urls import host_of
from service.model import ChannelId
from service.net.sites import host_and_parent_domains, site_of
from service.observability.metrics import UNPOLLED_CHANNELS
from service.store import Store
from service.store.channels.admin_settings import AdministeredChannel
from service.store.client.keys import REGISTRY_BUCKETS
from service.store.subscriptions.keyspaces import channel_prefix

FOREIGN_CURSOR: Final = "This cursor is not one the console gave out. Start again without it."

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

Sort = Literal["id", "title", "subscribers", "news", "version", "site", "failing", "added"]
State = Literal["polled", "failing", "idle", "paused", "blocked", "moved"]
"""``failing``: the last poll failed. ``idle``: neither subscribed to nor listed, so nobody polls it. ``paused``: admins
want nobody to poll it. ``blocked``: they want its host to be asked for nothing."""

_CURSOR: Final = re.compile(r"([0-9a-f]{40})(?:\.(\d{1,9}))?")
_ORDER_LASTS_S: Final = 5.0


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
        return self._counts.get(channel_prefix(cid), 0)

    def blocked(self, row: Row) -> bool:
        """Say whether a channel's host is to be asked for nothing."""
        if row.site not in self._blocked_sites:
            return False
        return any(name in self._blocked for name in host_and_parent_domains(host_of(row.folded.rpartition("\n")[2])))

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
        self._blocked = frozenset(await self._store.blocked_hosts.all())
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
        found = await self._store.channels.ids_in_buckets(changed) if changed else []
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
        if self._late and (nodes := await self._store.ring.nodes()):
            # A fleet that has just begun has missed nothing yet.
            began_s = min(node.joined_s for node in nodes)
            late = [cid for cid, each in self._late.items() if each.read_s - began_s > each.allowed_s]
        rows = [row for cid in late if not self.blocked(row := self.rows[cid])]
        self.unpolled = tuple(row.id for row in rows if row.listed or self.subscribers(row.id))
        UNPOLLED_CHANNELS.set(len(self.unpolled))

    def _judge(self, found: AdministeredChannel, row: Row, now_s: float) -> None:
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
            for cid, found in zip(some, await self._store.admin_settings.read(some), strict=True):
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


def late_after_s(found: AdministeredChannel, usual_interval_s: float) -> float:
    """Return for how long a channel may be left unpolled, once it may be polled, before that is a fault."""
    channel = found.channel
    if channel.dormant or channel.moved_to or channel.condition:
        return inf
    interval_s = found.poll_rate.interval_s if found.poll_rate else usual_interval_s
    return max(_INTERVALS_MISSED * interval_s, _SHORTEST_S) if interval_s > 0 else inf


def may_be_polled_since_s(found: AdministeredChannel) -> float:
    """Return since when (Unix s) the next poll of a channel may be waited for, as far as the store knows.

    That is since the last poll; but not while its publisher or admins want it left alone, and anew from when its owner
    changed how often it is polled. Its owner need not live for that to be known.
    """
    noted_s = found.poll_rate.since_s if found.poll_rate else 0.0
    return max(found.channel.created_s, found.polled_s, found.no_poll_before_s, found.paused_until_s, noted_s)


def row_of(found: AdministeredChannel, now_s: float) -> Row:
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


_KEYS: Final[Mapping[Sort, Callable[[Roster, Row], Any]]] = {
    "id": lambda _, row: row.id,
    "title": lambda _, row: row.folded,
    "subscribers": lambda roster, row: -roster.subscribers(row.id),
    "news": lambda _, row: row.update_interval_s,
    "version": lambda _, row: -row.version,
    "site": lambda _, row: row.site,
    "failing": lambda _, row: row.failing_since_s or inf,
    "added": lambda _, row: -row.created_s,
}
"""Those that are alike stand in the order of their titles."""
_AT_FIRST: Final[Mapping[str, Callable[[Row, float], bool]]] = {
    "failing": lambda row, _: row.failing_since_s > 0,
    "paused": lambda row, now_s: row.paused_until_s > now_s,
    "moved": lambda row, _: row.moved,
}
"""What must hold of channels in a state: cheap to ask, and true of few."""


class Wanted(msgspec.Struct, frozen=True):
    """What is looked for: a text in title or URL (any case), a state ("" for any), a tag ("" for any), a site."""

    text: str = ""
    state: State | Literal[""] = ""
    tag: str = ""
    site: str = ""
    sort: Sort = "id"
    reverse: bool = False


def doing(row: Row, subscribers: int, now_s: float, *, blocked: bool) -> State:
    """Return what becomes of a channel."""
    if row.moved:
        return "moved"
    if blocked:
        return "blocked"
    if row.paused_until_s > now_s:
        return "paused"
    if not (subscribers or row.listed):
        return "idle"
    return "failing" if row.failing_since_s else "polled"


class Finder:
    """Finds in a roster; keeps the orders that were asked for while they are good enough."""

    def __init__(self, roster: Roster) -> None:
        """Use this roster."""
        self._roster = roster
        self._orders: dict[Sort, _Order] = {}

    def find(self, wanted: Wanted) -> Sequence[ChannelId]:
        """Return the ids of all channels that are looked for, in order."""
        order = self._order(wanted.sort)
        ids: Sequence[ChannelId] = order[::-1] if wanted.reverse else order
        rows, text, now_s = self._roster.rows, wanted.text.casefold().strip(), time.time()
        if text:
            ids = [cid for cid in ids if text in rows[cid].folded]
        if wanted.site:
            ids = [cid for cid in ids if rows[cid].site == wanted.site]
        if wanted.tag:
            ids = [cid for cid in ids if wanted.tag in rows[cid].tags]
        if wanted.state:
            counted, at_first = self._roster.subscribers, _AT_FIRST.get(wanted.state)
            if at_first is not None:
                ids = [cid for cid in ids if at_first(rows[cid], now_s)]
            blocked = self._roster.blocked
            ids = [
                cid for cid in ids if doing(rows[cid], counted(cid), now_s, blocked=blocked(rows[cid])) == wanted.state
            ]
        return ids

    def tags(self) -> Sequence[str]:
        """Return all tags in use, in order."""
        return sorted({tag for row in self._roster.rows.values() for tag in row.tags})

    def _order(self, sort: Sort) -> list[ChannelId]:
        roster, known = self._roster, self._orders.get(sort)
        now_s = time.monotonic()
        if known is not None and known.serves(roster, now_s):
            return known.ids
        # Sorting keeps what is alike in order; and what was in order before nearly is, and is sorted the faster for it.
        if sort in {"id", "title"}:
            before = [cid for cid in known.ids if cid in roster.rows] if known else []
            new = roster.rows.keys() - set(before) if len(before) < len(roster.rows) else ()
            start: Sequence[ChannelId] = [*before, *new]
        else:
            start = self._order("title")
        rows, key = roster.rows, _KEYS[sort]
        ids = sorted(start, key=lambda cid: key(roster, rows[cid]))
        self._orders[sort] = _Order(ids, roster.members, roster.edition, now_s)
        return ids


class _Order(msgspec.Struct, frozen=True):
    ids: list[ChannelId]
    members: int
    edition: int
    made_s: float

    def serves(self, roster: Roster, now_s: float) -> bool:
        """Say whether this is still the order of the same channels, or nearly."""
        good_enough = self.edition == roster.edition or now_s - self.made_s < _ORDER_LASTS_S
        return self.members == roster.members and good_enough


def after(ids: Sequence[ChannelId], cursor: str) -> int:
    """Return where a page begins: behind the channel that a cursor names, or where that was if it is gone.

    Raises :class:`UserError` for a cursor that is none of ours.
    """
    if not cursor:
        return 0
    read = _CURSOR.fullmatch(cursor)
    if read is None:
        raise UserError(FOREIGN_CURSOR)
    try:
        return ids.index(read[1]) + 1
    except ValueError:
        # Those behind it have moved up by one; and rather is one seen twice than never.
        return min(max(0, int(read[2] or 0) - 1), len(ids))


def cursor_at(ids: Sequence[ChannelId], end: int) -> str:
    """Return the cursor of what follows the first ``end``; "" if nothing does."""
    return f"{ids[end - 1]}.{end}" if 0 < end < len(ids) else ""
