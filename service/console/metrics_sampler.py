"""Metrics of all processes: sampled every few seconds, as rates, delays and loads; and the live overview's watchers.

What watchers are sent is rendered once for all of them.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

import msgspec
import structlog

from service.clock import Clock
from service.errors import CoronetError, Unreachable
from service.net.internal_clients import ProcessClient
from service.store import Store

_READ: Final = ("coronet_", "process_cpu_seconds_total", "process_resident_memory_bytes")
_POLLS: Final = "coronet_polls_total"
_MESSAGES: Final = "coronet_messages_total"
_MOVES: Final = "coronet_key_group_moves_total"
DETECTION: Final = "coronet_detection_seconds"
DELIVERY: Final = "coronet_delivery_seconds"
RECEIPT: Final = "coronet_receipt_seconds"
_POLL_LAG: Final = "coronet_poll_lag_seconds"
_CONTENTS: Final = "coronet_contents_total{"
_VERSIONS: Final = "coronet_versions_info{"
_LABEL: Final = re.compile(r'(\w+)="([^"\\]*)"')
_MARKS: Final = (0.5, 0.95, 0.99)
_WATCHED_EVERY_S: Final = 5.0
_UNWATCHED_EVERY_S: Final = 30.0
_LEAST_S: Final = 1.0
_FINE_S: Final = 300.0
"""So far back all samples are kept; before that, one each half minute, for an hour."""
_COARSE_S: Final = 30.0
_KEPT_S: Final = 3_600.0
_LATELY_S: Final = 120.0
"""What a process does is told of the last one or two times so long."""
_MOST_PROCESSES: Final = 500

log = structlog.get_logger(__name__)


Counts = Mapping[str, float]
"""What processes have counted, by name and labels as they serve it."""


class Delays(msgspec.Struct, frozen=True):
    """Half, 95 % and 99 % of so many (``count``) took no longer, in seconds."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float


class Load(msgspec.Struct, frozen=True):
    """What one process does: of the last minutes, polls, its share of one core, and how far polls are behind.

    ``cache_hit_share`` is of all contents that were needed since it began (null if none was); ``versions`` are of what
    it runs.
    """

    polls_per_minute: float
    core_share: float
    memory_bytes: float
    poll_lag: Delays | None
    cache_entries: int
    cache_bytes: float
    cache_hit_share: float | None
    versions: dict[str, str]


class Sample(msgspec.Struct, frozen=True):
    """One look at all processes: when (Unix s), what they have counted since the first one, how many people wait."""

    at_s: float
    counts: Counts
    waiting: int


def read(text: str) -> dict[str, float]:
    """Return our own counts, and what the process takes of its machine, in a text as processes serve it (Prometheus).

    Lines that are none are left out.
    """
    counts: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith(_READ):
            name, _, value = line.rpartition(" ")
            try:
                counts[name] = counts.get(name, 0.0) + float(value)
            except ValueError:
                continue
    return counts


def growth(before: Counts, after: Counts) -> dict[str, float]:
    """Return by how much counts grew; those of a process that has begun anew count from nothing."""
    grown: dict[str, float] = {}
    for name, value in after.items():
        past = before.get(name, 0.0)
        grown[name] = value - past if value >= past else value
    return grown


def added(total: Counts, grown: Counts) -> dict[str, float]:
    """Return the sums of both."""
    return {name: total.get(name, 0.0) + grown.get(name, 0.0) for name in {*total, *grown}}


def polls(grown: Counts) -> dict[str, float]:
    """Return how many polls there were, by outcome."""
    return {outcome: value for outcome, value in _by_label(grown, _POLLS, "outcome").items() if value > 0}


def _by_label(counts: Counts, metric: str, label: str) -> dict[str, float]:
    """Return a metric's values by its only label."""
    start = f'{metric}{{{label}="'
    return {name[len(start) : -2]: value for name, value in counts.items() if name.startswith(start)}


def messages(grown: Counts) -> float:
    """Return how many messages the XMPP server took."""
    return grown.get(_MESSAGES, 0.0)


def moves(grown: Counts) -> dict[str, int]:
    """Return how many key groups were split, and merged, by kind."""
    return {kind: int(value) for kind, value in _by_label(grown, _MOVES, "kind").items() if value > 0}


def delays(grown: Counts, histogram: str) -> Delays | None:
    """Return how long things took, as buckets tell; None if there were none. Within a bucket all are equally likely."""
    found = _by_label(grown, f"{histogram}_bucket", "le")
    buckets = sorted((inf if bound == "+Inf" else float(bound), count) for bound, count in found.items())
    count = buckets[-1][1] if buckets else 0.0
    if count < 1:
        return None
    p50_s, p95_s, p99_s = (_quantile(buckets, share * count) for share in _MARKS)
    return Delays(int(count), p50_s, p95_s, p99_s)


def load(before: Counts, now: Counts, spent_s: float) -> Load:
    """Return what a process does, by what it had counted ``spent_s`` ago and has now."""
    grown = growth(before, now)
    needed = {name: value for name, value in now.items() if name.startswith(_CONTENTS)}
    versions = next((name for name in now if name.startswith(_VERSIONS)), "")
    return Load(
        polls_per_minute=sum(polls(grown).values()) / spent_s * 60,
        core_share=grown.get("process_cpu_seconds_total", 0.0) / spent_s,
        memory_bytes=now.get("process_resident_memory_bytes", 0.0),
        poll_lag=delays(grown, _POLL_LAG),
        cache_entries=int(now.get("coronet_content_cache_entries", 0)),
        cache_bytes=now.get("coronet_content_cache_bytes", 0.0),
        cache_hit_share=needed.get(f'{_CONTENTS}source="cache"}}', 0.0) / sum(needed.values()) if needed else None,
        versions=dict(_LABEL.findall(versions)),
    )


def _quantile(buckets: Sequence[tuple[float, float]], wanted: float) -> float:
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted:
            return low if bound == inf else low + (bound - low) * (wanted - below) / max(count - below, 1e-9)
        low, below = bound, count
    return low


def thinned(samples: Iterable[Sample], now_s: float, fine_s: float, coarse_s: float, kept_s: float) -> list[Sample]:
    """Return what to keep of samples, oldest first: all of the last ``fine_s``, before that one each ``coarse_s``."""
    kept: list[Sample] = []
    for sample in samples:
        old = now_s - sample.at_s > fine_s
        if now_s - sample.at_s > kept_s or (old and kept and sample.at_s - kept[-1].at_s < coarse_s):
            continue
        kept.append(sample)
    return kept


class Pulse:
    """The samples of the last hour, oldest first, and the watchers of the next ones."""

    def __init__(self, store: Store, clock: Clock, metrics_token: str = "") -> None:
        """Look at nothing before :meth:`start`."""
        self.samples: list[Sample] = []
        self.loads: dict[str, Load] = {}
        """What each process does, by where its metrics are."""
        self._store = store
        self._clock = clock
        self._metrics_token = metrics_token
        self._counts: dict[str, Counts] = {}
        """What each process has counted, by where it says so."""
        self._past: dict[str, tuple[Sample, Sample]] = {}
        """The same as it was some minutes ago, and later."""
        self._total: Counts = {}
        self._watchers = 0
        self._shown = b""
        self._beaten = asyncio.Event()
        self._watched = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    def recent_growth(self, now_s: float) -> tuple[Counts, float]:
        """Return by how much the counts grew in the last minutes, and in how many seconds."""
        recent = [sample for sample in self.samples if sample.at_s > now_s - _FINE_S]
        if not recent:
            return {}, 0.0
        return growth(recent[0].counts, recent[-1].counts), recent[-1].at_s - recent[0].at_s

    def start(self, show: Callable[[], Awaitable[bytes]]) -> None:
        """Begin to look, and to ``show`` while somebody watches."""
        self._beating = asyncio.create_task(self._beat(show))

    async def close(self) -> None:
        """Stop, and have all watching end."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait({self._beating})
        self._shown = b""
        self._beaten.set()

    async def watch(self) -> AsyncIterator[bytes]:
        """Yield what is shown at each look from now on, until this is closed."""
        self._watchers += 1
        self._watched.set()
        try:
            while self._beating is not None and not self._beating.done():
                await self._beaten.wait()
                if self._shown:
                    yield self._shown
        finally:
            self._watchers -= 1

    async def _beat(self, show: Callable[[], Awaitable[bytes]]) -> None:
        said = ""
        async with ProcessClient(self._metrics_token) as processes:
            while True:
                try:
                    await self._sample(processes)
                    self._shown = await show() if self._watchers else b""
                    said = ""
                except CoronetError as error:
                    if str(error) != said:
                        said = str(error)
                        log.warning("the fleet was not looked at", error=said)
                beaten, self._beaten = self._beaten, asyncio.Event()
                beaten.set()
                await self._rest()

    async def _rest(self) -> None:
        """Wait for the next look: with the first who comes to watch it is soon, however often they come."""
        self._watched.clear()
        await asyncio.sleep(_LEAST_S)
        try:
            await asyncio.wait_for(self._watched.wait(), _WATCHED_EVERY_S if self._watchers else _UNWATCHED_EVERY_S)
        except TimeoutError:
            return

    async def _sample(self, processes: ProcessClient) -> None:
        nodes, bots, waiting = await asyncio.gather(
            self._store.ring.nodes(), self._store.bot_endpoints.metrics_urls(), self._store.outbox.count_waiting()
        )
        urls = list(dict.fromkeys([*(node.metrics_url for node in nodes if node.metrics_url), *bots]))
        urls = urls[:_MOST_PROCESSES]
        now_s = self._clock.wall_s()
        told = await asyncio.gather(*(_counted(processes, url) for url in urls))
        for url, counts in zip(urls, told, strict=True):
            # Of a process that is seen for the first time, nobody knows when it counted what.
            grown = growth(self._counts.get(url, counts), counts)
            self._total = added(self._total, grown)
            self._counts[url] = counts or self._counts.get(url, counts)
        self._counts = {url: self._counts[url] for url in urls}
        self._weigh({url: counts for url, counts in zip(urls, told, strict=True) if counts}, now_s)
        counted = Sample(now_s, self._total, waiting)
        self.samples = thinned([*self.samples, counted], now_s, _FINE_S, _COARSE_S, _KEPT_S)

    def _weigh(self, told: Mapping[str, Counts], now_s: float) -> None:
        self.loads, past, self._past = {}, self._past, {}
        for url, counts in told.items():
            now = Sample(now_s, counts, 0)
            older, newer = past.get(url, (now, now))
            if now_s - newer.at_s >= _LATELY_S:
                older, newer = newer, now
            self._past[url] = older, newer
            if now_s > older.at_s:
                self.loads[url] = load(older.counts, counts, now_s - older.at_s)


async def _counted(processes: ProcessClient, url: str) -> Counts:
    """Return what a process has counted; nothing if it does not say."""
    try:
        return read(await processes.metrics(url))
    except Unreachable as error:
        log.debug("a process is left out", error=str(error))
        return {}
