"""What all processes count, looked at every few seconds; and what is shown then to all who watch, made once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import structlog

from service.clock import Clock
from service.console.figures import Counts, Load, Sample, added, growth, load, read, thinned
from service.errors import CoronetError, Unreachable
from service.net.processes import Processes
from service.store import Store

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

Show = Callable[[], Awaitable[bytes]]
"""Returns what those who watch are sent. May raise :class:`StoreUnavailable`."""


class _Past(NamedTuple):
    at_s: float
    counts: Counts


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
        self._past: dict[str, tuple[_Past, _Past]] = {}
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

    def start(self, show: Show) -> None:
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

    async def _beat(self, show: Show) -> None:
        said = ""
        async with Processes(self._metrics_token) as processes:
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

    async def _sample(self, processes: Processes) -> None:
        nodes, bots, waiting = await asyncio.gather(
            self._store.ring.view(), self._store.bots.metrics_urls(), self._store.outbox.depth()
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
            now = _Past(now_s, counts)
            older, newer = past.get(url, (now, now))
            if now_s - newer.at_s >= _LATELY_S:
                older, newer = newer, now
            self._past[url] = older, newer
            if now_s > older.at_s:
                self.loads[url] = load(older.counts, counts, now_s - older.at_s)


async def _counted(processes: Processes, url: str) -> Counts:
    """Return what a process has counted; nothing if it does not say."""
    try:
        return read(await processes.metrics(url))
    except Unreachable as error:
        log.debug("a process is left out", error=str(error))
        return {}
