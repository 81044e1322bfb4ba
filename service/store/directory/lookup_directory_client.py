"""Searches in the lookup directories, which workers keep in memory.

A *lookup directory* is a list of the channels that have one popular attribute-value pair. The workers announce which
pairs have a lookup directory, and which strategy distributes its entries over the workers. A client (a bot or the
console) queries the workers in the order that the strategy prescribes, until it has enough names (partial lookup, Sun
and Garcia-Molina §2). Searches for other pairs read the directory in Redis.

- Clients report how often each pair is searched for. From these counts, workers decide which pairs get a lookup
  directory.
- If a worker takes longer than most recent replies, the next one is queried as well (a *hedged* request).
- A worker that does not reply is queried last for a while, so that it delays only one search.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha1
from random import random

import msgspec
from cachetools import TTLCache

from service.discovery.av_pairs import Pair
from service.discovery.partial_lookup.lookup_client import PartialLookup, lookup_order
from service.discovery.partial_lookup.node_shares import DirectoryAnnouncement, LookupCount, MessagePart, encode_message
from service.discovery.partial_lookup.strategies import Fixed, FullReplication
from service.discovery.partial_lookup.strategy_choice import MIN_ENTRIES
from service.errors import StoreUnavailable
from service.model import NodeId
from service.observability.metrics import DIRECTORY_LOOKUPS
from service.overlay.ring import RingView
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisClient
from service.store.coordination.worker_inboxes import InboxMessage, NodeInboxes
from service.store.coordination.worker_leases import Ring
from service.store.coordination.worker_requests import LookupReply, LookupRequest, WorkerRequest

REFRESH_S = 2.0
"""Time in seconds for which a client caches the ring and the announcements, and interval at which it reports its counts
of searches."""
MAX_WORKERS_ASKED = 8
"""Maximum number of workers that one lookup queries."""
TIMEOUT_S = 0.025
"""Maximum duration of a lookup in seconds. If it takes longer, the matrices are queried instead."""
MIN_HEDGE_S, MAX_HEDGE_S = 0.002, 0.01
"""Lower and upper bound of the time in seconds that a lookup waits for a worker before it queries the next one too."""
_HEDGE_QUANTILE = 0.95
_RECENT_ANSWERS = 100
SUSPECT_S = 5.0
"""Time in seconds for which a worker that has not replied in time is queried last."""
_INSUFFICIENT_S = 10.0
_MAX_INSUFFICIENT = 10_000
_MAX_COUNTED = 1_000
_POLL_S = 1.0
"""Duration in seconds of the blocking command that waits for a reply."""

_announcement = msgspec.msgpack.Decoder(DirectoryAnnouncement)
_reply = msgspec.msgpack.Decoder(LookupReply)


class DirectoryAnnouncements:
    """Stores and reads announcements of lookup directories. Methods may raise :class:`StoreUnavailable`.

    A lookup directory is a list of the channels that have one attribute-value pair. Workers keep it in memory.
    """

    def __init__(self, redis: RedisClient) -> None:
        """Create the repository, which stores the announcements in ``redis``."""
        self._redis = redis
        self._own: dict[Pair, bytes] = {}
        """Maps each pair to this process's announcement, encoded."""

    async def announce(self, directories: Sequence[DirectoryAnnouncement], now_s: float, until_s: float) -> None:
        """Announce lookup directories until ``until_s``.

        The announcements replace those that this process made earlier for the same attribute-value pairs. ``now_s`` and
        ``until_s`` are Unix times by Redis's clock.
        """
        present = {each.pair: msgspec.msgpack.encode(each) for each in directories}
        former = [packed for pair, packed in self._own.items() if present.get(pair, packed) != packed]
        self._own |= present
        scores: list[float | bytes] = [part for packed in present.values() for part in (until_s, packed)]
        key = keys.DIRECTORY_ANNOUNCEMENTS
        commands: list[Command] = [("ZREM", key, *former)] if former else []
        commands += [("ZADD", key, *scores), ("ZREMRANGEBYSCORE", key, "-inf", now_s)]
        await self._redis.call_many(commands)

    async def read(self, now_s: float) -> dict[Pair, DirectoryAnnouncement]:
        """Return a mapping from attribute-value pairs to the latest announcements of their lookup directories.

        Only announcements that are still valid at ``now_s``, a Unix time by Redis's clock, are included.
        """
        found = await self._redis.call("ZRANGEBYSCORE", keys.DIRECTORY_ANNOUNCEMENTS, now_s, "+inf")
        announced: dict[Pair, DirectoryAnnouncement] = {}
        for packed in found:  # in the order of their ends
            try:
                each = _announcement.decode(packed)
            except msgspec.MsgspecError:  # of another version of Coronet
                continue
            announced[each.pair] = each
        return announced


class LookupResult(msgspec.Struct, frozen=True):
    """The result of a search in the lookup directory for the attribute-value pair ``directory``.

    A lookup directory is a list of the channels that have one attribute-value pair.

    - ``names``: ids of the best matching channels that the workers returned.
    - ``is_complete``: True if no other channels match.
    - ``answers``: how many workers replied.
    - ``asked``: how many workers were queried.
    """

    directory: Pair
    names: tuple[str, ...]
    is_complete: bool
    answers: int
    asked: int


class DirectoryLookups:
    """Finds channels by means of lookup directories, which workers keep in memory.

    A lookup directory is a list of the channels that have one attribute-value pair.
    """

    def __init__(
        self, redis: RedisClient, inboxes: NodeInboxes, ring: Ring, announcements: DirectoryAnnouncements
    ) -> None:
        self._redis = redis
        self._inboxes = inboxes
        self._ring = ring
        self._announcements = announcements
        self._view = RingView(-1, ())
        self._announced: dict[Pair, DirectoryAnnouncement] = {}
        self._clock_offset_s = 0.0
        """Redis's clock minus the monotonic clock."""
        self._refreshed_s = float("-inf")
        self._counts: dict[Pair, LookupCount] = {}
        self._durations_s: deque[float] = deque(maxlen=_RECENT_ANSWERS)
        self._suspects: TTLCache[NodeId, None] = TTLCache(1_000, SUSPECT_S)
        self._insufficient: TTLCache[frozenset[Pair], None] = TTLCache(_MAX_INSUFFICIENT, _INSUFFICIENT_S)
        """Sets of AV-pairs for which a directory has recently returned too few names."""
        self._late: set[asyncio.Task[None]] = set()

    async def lookup(self, pairs: Collection[Pair], target: int) -> LookupResult | None:
        """Search the lookup directories for channels that have all the attribute-value pairs in ``pairs``.

        The result contains the ids of at least ``target`` channels, or of all matching channels. It may be outdated.

        Return None if no lookup directory has enough matching channels, or if too few workers reply in time. The caller
        must then search in Redis instead. Raises :class:`StoreUnavailable` if Redis is unavailable.
        """
        await self._refresh()
        required = frozenset(pairs)
        directory = self._directory_for(required)
        if directory is None or required in self._insufficient:
            return None
        result, examined = await self._query_workers(directory, required, target)
        matches = max(len(result.names), 1)
        self._count(directory.pair, min(target * max(examined // matches, 1), directory.measured.entries))
        if len(result.names) >= target or result.is_complete:
            DIRECTORY_LOOKUPS.labels("answered").inc()
            return result
        is_answered = result.answers == result.asked
        if is_answered:
            self._insufficient[required] = None
        DIRECTORY_LOOKUPS.labels("insufficient" if is_answered else "unanswered").inc()
        return None

    def count_search(self, frequencies: Mapping[Pair, int], target: int) -> None:
        """Count a search for channels that was made in Redis instead of a lookup directory.

        From these counts, workers decide for which attribute-value pairs they keep a lookup directory in memory.

        - ``frequencies``: maps each attribute-value pair that the search requires to the number of channels with this
          pair. The search is counted for the pair with the fewest channels. It is not counted if this pair is too
          rare for a lookup directory.
        - ``target``: the number of channels that the search should find.
        """
        pair = min(frequencies, key=frequencies.__getitem__, default="")
        if pair and frequencies[pair] >= MIN_ENTRIES:
            self._count(pair, target)

    def _count(self, pair: Pair, target: int) -> None:
        former = self._counts.get(pair)
        if former is not None:
            self._counts[pair] = LookupCount(pair, former.lookups + 1, max(former.target, target))
        elif len(self._counts) < _MAX_COUNTED:
            self._counts[pair] = LookupCount(pair, 1, target)

    @property
    def hedge_s(self) -> float:
        """How many seconds to wait for a worker's reply before the next worker is queried as well.

        This is the time within which 95 % of recent replies arrived, but at least ``MIN_HEDGE_S`` and at most
        ``MAX_HEDGE_S``.
        """
        if not self._durations_s:
            return MAX_HEDGE_S
        ordered = sorted(self._durations_s)
        return min(max(ordered[int(_HEDGE_QUANTILE * len(ordered))], MIN_HEDGE_S), MAX_HEDGE_S)

    async def _refresh(self) -> None:
        """Report this process's counts of searches, and read the ring and the announcements.

        Do nothing if this was last done less than ``REFRESH_S`` seconds ago.
        """
        now_s = time.monotonic()
        if now_s - self._refreshed_s < REFRESH_S:
            return
        self._refreshed_s = now_s
        fleet_s, self._view = await self._ring.time_and_view()
        self._clock_offset_s = fleet_s - time.monotonic()
        counts, self._counts = self._counts, {}
        parts_by_node: dict[NodeId, list[MessagePart]] = {}
        for count in counts.values():
            coordinator = self._view.owner(_digest(count.pair))
            if coordinator is not None:
                parts_by_node.setdefault(coordinator, []).append(count)
        messages = [(node, InboxMessage("share", "", encode_message(parts))) for node, parts in parts_by_node.items()]
        if messages:
            await self._inboxes.send(messages)
        self._announced = await self._announcements.read(fleet_s)

    def _directory_for(self, required: frozenset[Pair]) -> DirectoryAnnouncement | None:
        """Return the smallest lookup directory that can answer a search for channels with all ``required`` pairs.

        Return None if there is none. A directory that lists only the best channels with its pair is not used if
        several pairs are required, because it may lack matching channels.
        """
        known = [self._announced[pair] for pair in required if pair in self._announced]
        usable = [each for each in known if each.is_complete or len(required) == 1]
        return min(usable, key=lambda each: each.measured.entries, default=None)

    async def _query_workers(
        self, directory: DirectoryAnnouncement, required: frozenset[Pair], target: int
    ) -> tuple[LookupResult, int]:
        """Query up to ``MAX_WORKERS_ASKED`` workers, until ``target`` channels are found or the time is up.

        Return (result, examined), where ``examined`` is how many entries of the lookup directory the workers examined.
        """
        nodes = self._servers(directory)
        # All servers of these strategies have the same entries.
        is_same = isinstance(directory.strategy, FullReplication | Fixed)
        lookup, order = PartialLookup(target, ()), iter(nodes[:MAX_WORKERS_ASKED])
        request_id, began_s = secrets.token_urlsafe(12), time.monotonic()
        until_s, asked, answered, examined = began_s + TIMEOUT_S, dict[NodeId, float](), set[NodeId](), 0
        body = LookupRequest(directory.pair, tuple(sorted(required)), target)
        reply: asyncio.Task[bytes | None] | None = None
        is_next_due = True
        while True:
            if is_next_due and (node := next(order, None)) is not None:
                asked[node] = time.monotonic()
                await self._send(node, request_id, body)
            if len(asked) == len(answered):
                break
            if reply is None:
                reply = asyncio.ensure_future(self._next_reply(request_id))
            now_s = time.monotonic()
            if now_s >= until_s:
                break
            await asyncio.wait([reply], timeout=min(self.hedge_s, until_s - now_s))
            if not reply.done():
                self._suspects.update(dict.fromkeys(asked.keys() - answered))
                is_next_due = True
                continue
            payload, reply = reply.result(), None
            answer = _decode_reply(payload)
            if answer is None or answer.worker not in asked or answer.worker in answered:
                is_next_due = False
                continue
            answered.add(answer.worker)
            self._suspects.pop(answer.worker, None)
            self._durations_s.append(time.monotonic() - asked[answer.worker])
            examined += answer.examined
            lookup.on_answer(answer.names)
            if lookup.missing == 0 or (is_same and answer.examined):
                break
            is_next_due = len(asked) == len(answered)
        if len(answered) < len(asked):
            late = asyncio.ensure_future(self._await_late_reply(request_id, reply))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
        is_all = directory.is_complete and isinstance(directory.strategy, FullReplication) and examined > 0
        names = tuple(lookup.found)
        return LookupResult(directory.pair, names, is_all, len(answered), len(asked)), examined

    def _servers(self, directory: DirectoryAnnouncement) -> list[NodeId]:
        """Return the workers in the order in which to query them.

        This is the order that the strategy of ``directory`` prescribes. Workers that recently did not reply in time are
        moved to the end.
        """
        ids = self._view.ids
        if not ids:
            return []
        begin = ids.index(self._view.owner(_digest(directory.pair)) or ids[0])
        numbers = lookup_order(directory.strategy, len(ids), random())  # noqa: S311 - balances load
        nodes = [ids[(begin + number) % len(ids)] for number in numbers]
        return sorted(nodes, key=self._suspects.__contains__)

    async def _send(self, node: NodeId, request_id: str, body: LookupRequest) -> None:
        until_s = time.monotonic() + self._clock_offset_s + 1.0
        request = WorkerRequest(request_id, body, until_s)
        await self._inboxes.send([(node, InboxMessage("ask", "", msgspec.msgpack.encode(request)))])

    async def _next_reply(self, request_id: str) -> bytes | None:
        found = await self._redis.call_blocking("BLPOP", keys.reply(request_id), _POLL_S)
        return found[1] if found else None

    async def _await_late_reply(self, request_id: str, reply: asyncio.Task[bytes | None] | None) -> None:
        """Wait about a second for a worker's late reply. A worker that replies is no longer queried last.

        ``reply`` is the task that is already waiting for the reply; None if there is none.
        """
        with suppress(StoreUnavailable):
            answer = _decode_reply(await (reply or self._next_reply(request_id)))
            if answer is not None:
                self._suspects.pop(answer.worker, None)


def _decode_reply(payload: bytes | None) -> LookupReply | None:
    try:
        return None if payload is None else _reply.decode(payload)
    except msgspec.MsgspecError:
        return None


def _digest(pair: Pair) -> str:
    return sha1(pair.encode(), usedforsecurity=False).hexdigest()
