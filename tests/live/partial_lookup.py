"""Partial lookup by real workers under different loads.

Run it with ``python -m tests.live.partial_lookup [--seconds S] [--workers N]``.

Workers are processes on one Redis. Five pairs have directories under loads that differ in the number of names, names
per lookup, and updates per lookup, so that each load leads to another of the five strategies. A sixth pair has few
names. Prints JSON: for each pair its strategy, the measured number of workers that a lookup asks and the one by the
paper's formula, and the durations of lookups; then the durations of lookups and searches in the matrices during 10 s
after the coordinator of a directory was killed. Fails if a strategy is missing, if a cost differs by more than a tenth,
or if lookups after the kill take too long.

A search is as in :mod:`service.search.searcher`: it asks the workers, and the matrices if they have too few names.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from aiohttp.test_utils import unused_port

from service.discovery.partial_lookup.strategies import expected_lookup_cost, strategy_name
from service.discovery.partial_lookup.strategy_choice import DirectoryChoice
from service.discovery.search_candidates import require_all
from service.embedded.private_redis import PrivateRedis
from service.settings import Settings
from service.store import Store, opened
from service.store.channels.channel_records import pack_name
from service.store.client import keys
from service.store.directory import lookup_directory_client
from service.store.directory.matrix_directory import ContentName
from tests.support.waiting import until

KEPT_S = 3_600.0
MAINTENANCE_S = 2.0
TOLERANCE = 0.1
MAX_P99_S = 0.04
KILLED_FOR_S = 10.0
PATIENT_TIMEOUT_S = 2.0
COST_SEARCHES = 300
RARE = "lang=xx"
RARE_SHARE = 14
"""One of so many names has ``RARE``."""
SETTINGS = {
    "CORONET_MAINTENANCE_INTERVAL_S": str(MAINTENANCE_S),
    "CORONET_LEASE_TTL_S": "6",
    "CORONET_CLUSTER_SECRET": "partial lookup",
}


class Load(msgspec.Struct, frozen=True):
    """The load on the directory of ``pair``: lookups and updates per second, and the number of names.

    Each lookup wants ``target`` names, which also have ``RARE`` if ``for_rare``.
    """

    pair: str
    names: int
    target: int
    lookups_s: float = 15.0
    updates_s: float = 0.0
    for_rare: bool = False

    @property
    def pairs(self) -> tuple[str, ...]:
        """The AV-pairs of a lookup."""
        return (self.pair, RARE) if self.for_rare else (self.pair,)


LOADS = {
    "FullReplication": Load("tag=full", 600, 40, for_rare=True),
    "RoundRobin": Load("tag=round", 2_000, 40),
    "RandomServer": Load("tag=random", 7_000, 40),
    "Fixed": Load("tag=fixed", 2_000, 40, updates_s=6.0),
    "Hash": Load("tag=hash", 600, 238, updates_s=6.0),
}
COLD = Load("tag=cold", 30, 20)


class Searches:
    """The searches for one pair, and the updates of its names."""

    def __init__(self, store: Store, load: Load) -> None:
        self.load = load
        self._store = store
        self._random = Random(load.pair)  # noqa: S311 - a workload
        self._numbers = itertools.count()
        self._names: list[ContentName] = []
        self.asked: list[int] = []
        """Workers that each lookup asked, of those that were answered by workers."""
        self.durations_s: list[tuple[float, float, bool]] = []
        """When each search began, how long it took, and whether workers answered it."""

    async def register(self) -> None:
        """Register all names."""
        while len(self._names) < self.load.names:
            await self._add(min(500, self.load.names - len(self._names)))

    async def _add(self, count: int) -> None:
        new = [self._new_name(next(self._numbers)) for _ in range(count)]
        await self._store.redis.call_many(
            [("HSET", keys.channel(name.id), "name", pack_name(1, name.pairs.keys())) for name in new]
        )
        await self._store.channel_directory.register(new, time.time() + KEPT_S)
        self._names += new

    def _new_name(self, number: int) -> ContentName:
        ident = sha1(f"{self.load.pair} {number}".encode(), usedforsecurity=False).hexdigest()
        pairs = {self.load.pair: 1 + number % 64}
        return ContentName(ident, pairs | {RARE: 1} if number % RARE_SHARE == 0 else pairs)

    async def replace_one(self) -> None:
        """Withdraw a random name, and register a new one."""
        place = self._random.randrange(len(self._names))
        old, self._names[place] = self._names[place], self._names[-1]
        self._names.pop()
        await self._store.channel_directory.withdraw(old.id, old.pairs, time.time() + KEPT_S)
        await self._add(1)

    async def search(self) -> None:
        """Search once, as a bot does."""
        began_s = time.monotonic()
        found = await self._store.directory_lookups.lookup(self.load.pairs, self.load.target)
        if found is None:
            result = await self._store.channel_directory.find(require_all(self.load.pairs), (), self.load.target)
            self._store.directory_lookups.count_search(result.frequencies, self.load.target)
        else:
            self.asked.append(found.answers)
        self.durations_s.append((began_s, time.monotonic() - began_s, found is not None))

    async def run(self, until_s: float) -> None:
        """Search and update at the load's rates until ``until_s`` (monotonic)."""
        await asyncio.gather(
            self._repeat(self.search, self.load.lookups_s, until_s),
            self._repeat(self.replace_one, self.load.updates_s / 2, until_s),
        )

    @staticmethod
    async def _repeat(act: Any, per_s: float, until_s: float) -> None:
        due_s = time.monotonic()
        while per_s and due_s < until_s:
            await asyncio.sleep(due_s - time.monotonic())
            await act()
            due_s = max(due_s + 1 / per_s, time.monotonic())


@contextlib.asynccontextmanager
async def workers(redis_url: str, directory: Path, count: int) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Run workers."""
    processes = []
    for number in range(count):
        environ = {**os.environ, **SETTINGS, "CORONET_REDIS_URL": redis_url}
        environ |= {"CORONET_METRICS_PORT": str(unused_port())}
        with (directory / f"worker{number}.log").open("wb") as log:
            processes.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "service.cli", "worker"), env=environ, stdout=log, stderr=log
                )
            )
    try:
        yield processes
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def measure(store: Store, count: int, seconds: float, processes: Sequence[Any]) -> dict[str, Any]:
    """Run all loads; return the report."""

    async def all_joined() -> bool:
        return len(await store.ring.nodes()) == count

    await until(all_joined, "all workers have joined", within_s=60)
    progress("workers joined")
    every = {name: Searches(store, load) for name, load in (LOADS | {"none": COLD}).items()}
    for each in every.values():
        await each.register()
    progress("names registered")
    half_s = seconds / 2
    # While lookup costs are measured, no lookup is given up: those that ask one worker would be finished more often.
    timeout_s, lookup_directory_client.TIMEOUT_S = lookup_directory_client.TIMEOUT_S, PATIENT_TIMEOUT_S
    await run_all(every, half_s)
    progress("directories placed")
    for each in every.values():
        each.asked.clear()
        each.durations_s.clear()
    before = await choices(store)
    await run_all(every, half_s)
    chosen = await choices(store)
    costs = [await measure_costs(store, each, processes) for each in every.values() if not each.load.for_rare]
    lookup_directory_client.TIMEOUT_S = timeout_s
    strategies = {
        name: describe(each, chosen.get(each.load.pair), is_steady=_is_same(before, chosen, each.load.pair))
        for name, each in every.items()
    }
    return {
        "workers": count,
        "strategies": strategies,
        "costs": costs,
        "after_kill": await measure_kill(store, every["RoundRobin"], processes),
    }


async def measure_costs(store: Store, searches: Searches, processes: Sequence[Any]) -> dict[str, Any]:
    """Return the processor time per search of Redis, this process and the workers: of the matrices, and of workers."""
    load, report = searches.load, dict[str, Any](names=searches.load.names)
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "matrices": lambda: store.channel_directory.find(require_all(load.pairs), (), load.target),
        "workers": lambda: store.directory_lookups.lookup(load.pairs, load.target),
    }
    for way, search in ways.items():
        before = await processor_times_s(store, processes)
        answers = [await search() for _ in range(COST_SEARCHES)]
        after = await processor_times_s(store, processes)
        if all(answer is not None for answer in answers):
            report[way] = {f"{part}_us": 1e6 * (after[part] - before[part]) / COST_SEARCHES for part in after}
    return report


async def processor_times_s(store: Store, processes: Sequence[Any]) -> dict[str, float]:
    """Return the processor time of Redis, of this process, and of all workers so far."""
    info = await store.redis.call("INFO", "cpu")
    redis_s = float(info["used_cpu_sys"]) + float(info["used_cpu_user"])
    ticks = 0
    for process in processes:
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(stat[11]) + int(stat[12])
    return {"redis": redis_s, "asker": time.process_time(), "workers": ticks / os.sysconf("SC_CLK_TCK")}


def progress(text: str) -> None:
    """Tell whoever waits what has been done."""
    print(text, file=sys.stderr)  # noqa: T201 - the report of a program


def _is_same(before: dict[str, DirectoryChoice], after: dict[str, DirectoryChoice], pair: str) -> bool:
    return pair in before and pair in after and before[pair].choice.strategy == after[pair].choice.strategy


async def run_all(every: dict[str, Searches], seconds: float) -> None:
    """Run all loads at the same time."""
    until_s = time.monotonic() + seconds
    await asyncio.gather(*(each.run(until_s) for each in every.values()))


async def choices(store: Store) -> dict[str, DirectoryChoice]:
    """Return the directories by pair."""
    return {each.pair: each for each in await store.worker_requests.directories()}


def describe(searches: Searches, chosen: DirectoryChoice | None, *, is_steady: bool) -> dict[str, Any]:
    """Return the figures of one load."""
    durations = sorted(took_s for _, took_s, _ in searches.durations_s)
    by_workers = [answered for *_, answered in searches.durations_s]
    report: dict[str, Any] = {
        "searches": len(durations),
        "by_workers": sum(by_workers) / max(len(by_workers), 1),
        "p50_ms": 1e3 * durations[len(durations) // 2],
        "p99_ms": 1e3 * durations[int(0.99 * len(durations))],
    }
    if chosen is not None:
        measured, strategy = chosen.measured, chosen.choice.strategy
        cost = sum(searches.asked) / max(len(searches.asked), 1)
        wanted = min(searches.load.target * (RARE_SHARE if searches.load.for_rare else 1), measured.entries)
        expected = expected_lookup_cost(strategy, wanted, measured.entries, measured.servers)
        report |= {
            "kind": type(strategy).__name__,
            "strategy": strategy_name(strategy),
            "steady": is_steady,
            "measured": msgspec.to_builtins(measured),
            "reasons": [why.rule.value for why in chosen.choice.reasons],
            "lookup_cost": cost,
            "expected_cost": expected,
        }
    return report


async def measure_kill(store: Store, searches: Searches, processes: Sequence[Any]) -> dict[str, Any]:
    """Kill the worker that coordinates the directory; return the durations of searches in the next seconds."""
    ring = await store.ring.view()
    pair = searches.load.pair
    coordinator = ring.owner(sha1(pair.encode(), usedforsecurity=False).hexdigest())
    name = next(info.name for info in ring.nodes if info.id == coordinator)
    searches.durations_s.clear()
    next(process for process in processes if name.endswith(f"{process.pid}")).send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    await searches.run(killed_s + KILLED_FOR_S)
    took = sorted(took_s for _, took_s, _ in searches.durations_s)
    return {
        "searches": len(took),
        "by_workers": sum(answered for *_, answered in searches.durations_s) / len(took),
        "p50_ms": 1e3 * took[len(took) // 2],
        "p95_ms": 1e3 * took[int(0.95 * len(took))],
        "p99_ms": 1e3 * took[int(0.99 * len(took))],
        "max_ms": 1e3 * took[-1],
    }


def problems(report: dict[str, Any]) -> list[str]:
    """Return what does not hold."""
    found = []
    for name, figures in report["strategies"].items():
        strategy = figures.get("strategy")
        kind = {"full replication": "FullReplication", "Round-Robin": "RoundRobin"}
        named = (
            None if strategy is None else kind.get(strategy.rpartition("-")[0] or strategy, strategy.partition("-")[0])
        )
        if named != (None if name == "none" else name):
            found.append(f"{name}: {strategy}")
        elif named and abs(figures["lookup_cost"] / figures["expected_cost"] - 1) > TOLERANCE:
            found.append(f"{name}: lookup cost")
    if report["after_kill"]["p99_ms"] > 1e3 * MAX_P99_S:
        found.append("p99 after a kill")
    return found


async def run(count: int, seconds: float) -> dict[str, Any]:
    """Run it; return the report."""
    with tempfile.TemporaryDirectory() as state:
        async with (
            PrivateRedis(Path(state) / "r") as redis,
            opened(Settings(redis_url=redis.url)) as store,
            workers(redis.url, Path(state), count) as processes,
        ):
            return await measure(store, count, seconds, processes)


def main() -> None:
    """Run it, print the report, and fail if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--workers", type=int, default=5)
    options = parser.parse_args()
    report = asyncio.run(run(options.workers, options.seconds))
    report["problems"] = problems(report)
    print(json.dumps(report, indent=2))  # noqa: T201 - the report of a program
    sys.exit(bool(report["problems"]))


if __name__ == "__main__":
    main()
