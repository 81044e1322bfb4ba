"""Metrics scraper: regularly reads the metrics of all processes, and keeps the samples of the last hour.

It reads them every 5 seconds while somebody watches the live overview, and every 30 seconds otherwise. Each sample is
rendered only once, even if several people watch the overview.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from service.asyncio_tasks import cancel_and_wait
from service.console.queries.metrics_statistics import Counts, Load, compute_growth, compute_load, parse_metrics
from service.errors import CoronetError, Unreachable
from service.net.internal_clients import ProcessClient
from service.operations.store_metrics import update_store_gauges
from service.store import Store

_WATCHED_INTERVAL_S: Final = 5.0
_IDLE_INTERVAL_S: Final = 60.0
_MIN_INTERVAL_S: Final = 1.0
_FINE_S: Final = 300.0
"""Maximum age at which all samples are kept. Of older samples, only one in each ``_COARSE_S`` seconds is kept."""
_COARSE_S: Final = 30.0
_RETENTION_S: Final = 3_600.0
_LOAD_WINDOW_S: Final = 120.0
"""Minimum time over which the load of a process is averaged; the maximum is twice as long. Whenever this time has
passed, a sample is kept as a reference. The load is computed from the change between the last but one reference and
the newest sample."""
_MAX_PROCESSES: Final = 500

log = structlog.get_logger(__name__)


class Sample(msgspec.Struct, frozen=True):
    """The metrics of the fleet at the Unix time ``at_s``.

    ``counts`` contains the value of each metric, summed over all processes. ``waiting`` is the number of people with
    undelivered messages.
    """

    at_s: float
    counts: Counts
    waiting: int


def thin_out(samples: Iterable[Sample], now_s: float) -> list[Sample]:
    """Return the samples to keep at the Unix time ``now_s``, oldest first.

    All samples up to ``_FINE_S`` seconds old are kept. Of older samples, one per ``_COARSE_S`` seconds is kept, and
    samples older than ``_RETENTION_S`` seconds are dropped.
    """
    kept: list[Sample] = []
    for sample in samples:
        is_old = now_s - sample.at_s > _FINE_S
        if now_s - sample.at_s > _RETENTION_S or (is_old and kept and sample.at_s - kept[-1].at_s < _COARSE_S):
            continue
        kept.append(sample)
    return kept


class MetricsScraper:
    """Samples the metrics of all processes in the background, and streams the live overview to its viewers."""

    def __init__(self, store: Store, metrics_token: str) -> None:
        """Create a scraper, which takes its first sample after :meth:`start`.

        ``metrics_token`` is sent with the requests for metrics; "" means that no token is sent.
        """
        self.samples: list[Sample] = []
        """The samples of the last hour, oldest first."""
        self.loads: dict[str, Load] = {}
        """The load of each process, by the URL of its metrics."""
        self._store = store
        self._metrics_token = metrics_token
        self._counts: dict[str, Counts] = {}
        """The latest counts of each process, by the URL of its metrics."""
        self._references: dict[str, tuple[Sample, Sample]] = {}
        """Two earlier samples of each process, older first, by the URL of its metrics.

        The load is computed over the time since the older one.
        """
        self._watchers = 0
        self._update = b""
        self._sampled = asyncio.Event()
        self._watcher_joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def recent_growth(self, now_s: float) -> tuple[Counts, float]:
        """Return (growth, seconds): how much each metric has increased in the last 5 minutes, and over what time.

        ``growth`` maps each metric to its increase from the oldest to the newest sample of the last 5 minutes.
        ``seconds`` is the time between these two samples. Without samples, the result is ({}, 0.0). ``now_s`` is the
        current Unix time.
        """
        recent = [sample for sample in self.samples if sample.at_s > now_s - _FINE_S]
        if not recent:
            return {}, 0.0
        return compute_growth(recent[0].counts, recent[-1].counts), recent[-1].at_s - recent[0].at_s

    def start(self, render_update: Callable[[], Awaitable[bytes]]) -> None:
        """Start sampling.

        While somebody watches the live overview, ``render_update`` is called after each sample to render it.
        """
        self._task = asyncio.create_task(self._run(render_update))

    async def close(self) -> None:
        """Stop sampling and end all :meth:`watch` iterators."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        self._update = b""
        self._sampled.set()

    async def watch(self) -> AsyncIterator[bytes]:
        """Yield the rendered live overview after each sample, until the scraper is closed."""
        self._watchers += 1
        self._watcher_joined.set()
        try:
            while self._task is not None and not self._task.done():
                await self._sampled.wait()
                if self._update:
                    yield self._update
        finally:
            self._watchers -= 1

    async def _run(self, render_update: Callable[[], Awaitable[bytes]]) -> None:
        logged_error = ""
        async with ProcessClient(self._metrics_token) as processes:
            while True:
                try:
                    await self._sample(processes)
                    self._update = await render_update() if self._watchers else b""
                    logged_error = ""
                except CoronetError as error:
                    if str(error) != logged_error:
                        logged_error = str(error)
                        log.warning("metrics sample failed, will retry", error=logged_error)
                sampled, self._sampled = self._sampled, asyncio.Event()
                sampled.set()
                await self._wait_for_next()

    async def _wait_for_next(self) -> None:
        """Wait until the next sample is due.

        When somebody starts to watch the overview, the next sample is due at once, or as soon as ``_MIN_INTERVAL_S``
        seconds have passed since the previous sample.
        """
        self._watcher_joined.clear()
        await asyncio.sleep(_MIN_INTERVAL_S)
        interval_s = _WATCHED_INTERVAL_S if self._watchers else _IDLE_INTERVAL_S
        with suppress(TimeoutError):
            await asyncio.wait_for(self._watcher_joined.wait(), interval_s - _MIN_INTERVAL_S)

    async def _sample(self, processes: ProcessClient) -> None:
        nodes, bots, waiting, _ = await asyncio.gather(
            self._store.ring.nodes(),
            self._store.bot_endpoints.metrics_urls(),
            self._store.outbox.count_waiting(),
            update_store_gauges(self._store),
        )
        urls = list(dict.fromkeys([*(node.metrics_url for node in nodes if node.metrics_url), *bots]))[:_MAX_PROCESSES]
        now_s = time.time()
        scraped = dict(zip(urls, await asyncio.gather(*(_scrape(processes, url) for url in urls)), strict=True))
        total, before = Counter[str](self.samples[-1].counts if self.samples else ()), self._counts
        self._counts = {url: known for url, counts in scraped.items() if (known := counts or before.get(url))}
        for url, counts in scraped.items():
            # The counts of a new process are not added: it is unknown when they were counted.
            total.update(compute_growth(before.get(url, counts), counts))
        self._update_loads({url: counts for url, counts in scraped.items() if counts}, now_s)
        self.samples = thin_out([*self.samples, Sample(now_s, total, waiting)], now_s)

    def _update_loads(self, scraped: Mapping[str, Counts], now_s: float) -> None:
        self.loads, references, self._references = {}, self._references, {}
        for url, counts in scraped.items():
            now = Sample(now_s, counts, 0)
            older, newer = references.get(url, (now, now))
            if now_s - newer.at_s >= _LOAD_WINDOW_S:
                older, newer = newer, now
            self._references[url] = older, newer
            if now_s > older.at_s:
                self.loads[url] = compute_load(older.counts, counts, now_s - older.at_s)


async def _scrape(processes: ProcessClient, url: str) -> Counts:
    """Return the metrics of the process at ``url``; they are empty if it does not respond."""
    try:
        return parse_metrics(await processes.metrics(url))
    except Unreachable as error:
        log.debug("process metrics unavailable", url=url, error=str(error))
        return {}
