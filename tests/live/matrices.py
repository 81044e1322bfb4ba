"""Discovery matrices under a load that increases tenfold in a minute: ``python -m tests.live.matrices``.

The test runs on one Redis and on a Redis Cluster of six nodes. Registrations of names with 12 skewed pairs and queries
arrive at a constant rate, which increases tenfold, stays, and decreases again. Half of the queries are for one tag, the
others for 1 to 4 pairs, or for all pairs, of a registered name. A registration succeeds if it is acknowledged within a
second of its due time; a query if it finds within a second a name with all its pairs, and for all pairs the very name.
Prints JSON.

Deviation from default settings: as one machine cannot generate the load for the default thresholds, a cell accepts a
tenth of the registrations and queries per second (``LIMITS``), and names expire after a quarter of a minute.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from service.discovery.candidates import Candidates, require_all
from service.discovery.matrix import MatrixLimits
from service.embedded.redis import PrivateRedis
from service.errors import CellsUnavailable, StoreUnavailable
from service.settings import Settings
from service.store import Store, connect
from service.store.directory.matrices import ContentName, Directory
from service.store.directory.matrix_balancer import MatrixBalancer
from tests.bench.bench_discovery import population
from tests.support.redis_cluster import RedisCluster

LIMITS = MatrixLimits(names=1_000, registrations_s=40.0, queries_s=80.0)
KEPT_S, STALE_S = 15.0, 12.0
TICK_S = 0.1
RISES = 10
IN_TIME_S = 1.0
UPKEEP_EVERY_S = 0.5
WINDOW_S = 5.0
HOT = "tag=tag 0"

Usage = dict[str, tuple[int, float]]
"""Of each primary: the commands it has done, and its processor's seconds."""


class Measurements:
    """The measurements of a run."""

    def __init__(self) -> None:
        self.done: list[tuple[str, float, float, bool]] = []
        """Of each registration and query: what it was, when it was due, how long it took, and whether it succeeded."""
        self.sizes: list[tuple[float, int, int, int]] = []
        """When, how many matrices had several cells, how many of those, and the most in one."""
        self.false_matches = 0


class LoadGenerator:
    """All clients that register names and send queries, at a given rate."""

    def __init__(self, directory: Directory, seen: Measurements) -> None:
        self._directory, self._seen = directory, seen
        self._drawn = random.Random(8)  # noqa: S311 - a workload
        self._pairs = population(20_000)
        self._number = itertools.count()
        self._there: list[tuple[float, str]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def come(self, seconds: float, pace: Callable[[float], tuple[float, float]]) -> None:
        """Generate load for some seconds.

        ``pace`` returns (names/s, queries/s) for the share of the time that has passed.
        """
        began_s, owed_names, owed_queries = time.monotonic(), 0.0, 0.0
        for tick in range(round(seconds / TICK_S)):
            due_s = began_s + tick * TICK_S
            await asyncio.sleep(due_s - time.monotonic())
            names_s, queries_s = pace(tick * TICK_S / seconds)
            owed_names, owed_queries = owed_names + names_s * TICK_S, owed_queries + queries_s * TICK_S
            self._begin("registrations", due_s, int(owed_names), self._register(int(owed_names)))
            for _ in range(int(owed_queries)):
                self._begin("queries", due_s, 1, self._ask())
            owed_names, owed_queries = owed_names % 1, owed_queries % 1
        await asyncio.gather(*self._under_way)

    def _begin(self, what: str, due_s: float, count: int, doing: Awaitable[bool]) -> None:
        async def timed() -> None:
            try:
                succeeded = await doing
            except (StoreUnavailable, CellsUnavailable):
                succeeded = False
            took_s = time.monotonic() - due_s
            self._seen.done += [(what, due_s, took_s, succeeded and took_s <= IN_TIME_S)] * count

        task = asyncio.create_task(timed())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _register(self, count: int) -> bool:
        ids = [f"{next(self._number):040x}" for _ in range(count)]
        names = [ContentName(one, dict.fromkeys(self._pairs_of(one), 1)) for one in ids]
        await self._directory.register(names, KEPT_S)
        self._there += [(time.monotonic(), one) for one in ids]
        return True

    async def _ask(self) -> bool:
        if self._drawn.random() < 1 / 2:
            return bool(self._right(await self._directory.find(require_all([HOT]), (), 10), frozenset([HOT])))
        while self._there[0][0] < time.monotonic() - STALE_S:
            del self._there[0]
        _, wanted = self._drawn.choice(self._there)
        own = self._pairs_of(wanted)
        if self._drawn.random() < 1 / 5:
            return wanted in self._right(await self._directory.find(require_all(own), (), 10), own)
        some = frozenset(self._drawn.sample(sorted(own), self._drawn.randint(1, 4)))
        return bool(self._right(await self._directory.find(require_all(some), (), 10), some))

    def _right(self, result: Candidates, pairs: frozenset[str]) -> set[str]:
        found = set(result.names)
        right = {name for name in found if pairs <= self._pairs_of(name)}
        self._seen.false_matches += len(found - right)
        return right

    def _pairs_of(self, name: str) -> frozenset[str]:
        return self._pairs[int(name, 16) % len(self._pairs)]


async def maintain_until_cancelled(store: Store, directory: Directory) -> None:
    """Keep the matrices, like workers, until cancelled."""
    balancer = MatrixBalancer(directory, store.redis_node_loads)
    while True:
        with contextlib.suppress(StoreUnavailable, CellsUnavailable):
            await balancer.maintain(lambda _: True)
        await asyncio.sleep(UPKEEP_EVERY_S)


async def record_sizes(directory: Directory, seen: Measurements) -> None:
    """Record the sizes of matrices every second."""
    while True:
        sizes = [size.partitions * size.replicas for size in (await directory.matrix_sizes()).values()]
        seen.sizes.append((time.monotonic(), len(sizes), sum(sizes), max(sizes, default=1)))
        await asyncio.sleep(1)


async def read_usage(cluster: RedisCluster) -> Usage:
    """Return the number of commands and the processor time of each primary so far."""
    found = {}
    for port in await cluster.masters():
        stats, cpu = await cluster.ask(port, "INFO", "commandstats"), await cluster.ask(port, "INFO", "cpu")
        calls = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "hmget"))
        found[str(port)] = calls, cpu["used_cpu_user"] + cpu["used_cpu_sys"]
    return found


def busiest_primary(before: Usage, after: Usage) -> dict[str, Any]:
    """Return the busiest primary's usage between two readings, relative to the mean."""
    done = [(after[port][0] - before[port][0], after[port][1] - before[port][1]) for port in before]
    calls, cpu_s = ([each[part] for each in done] for part in (0, 1))
    return {
        "primaries": len(done),
        "busiest_primary_commands_over_mean": round(max(calls) * len(done) / sum(calls), 2),
        "busiest_primary_cpu_over_mean": round(max(cpu_s) * len(done) / sum(cpu_s), 2),
    }


def summarise(seen: Measurements, phases: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return the measurements by phase; the worst interval has ``WINDOW_S`` seconds."""
    found: dict[str, Any] = {}
    for phase, (start_s, end_s) in phases.items():
        told_of: dict[str, Any] = {"seconds": round(end_s - start_s, 1)}
        for what in ("registrations", "queries"):
            own = [(due_s, took_s, ok) for kind, due_s, took_s, ok in seen.done if kind == what]
            own = [each for each in own if start_s <= each[0] < end_s]
            told_of[f"{what}_per_s"] = round(len(own) / (end_s - start_s))
            told_of[f"{what}_ms"] = {f"p{share * 100:g}": _quantile(own, share) for share in (0.5, 0.99)}
            told_of[f"{what}_succeeded"] = round(sum(ok for *_, ok in own) / max(len(own), 1), 4)
        sizes = [each for at_s, *each in seen.sizes if start_s <= at_s < end_s] or [[0, 0, 0]]
        parts = ("matrices_of_several_cells", "cells_of_those", "cells_of_the_largest")
        told_of |= {f"{part}_most": max(column) for part, column in zip(parts, zip(*sizes, strict=True), strict=True)}
        told_of |= {f"{part}_last": last for part, last in zip(parts, sizes[-1], strict=True)}
        found[phase] = told_of
    return found | {"least_success_in_any_stretch": _least_success(seen), "false_matches": seen.false_matches}


def _quantile(own: Sequence[tuple[float, float, bool]], share: float) -> float:
    took_s = sorted(each[1] for each in own)
    return round(1000 * took_s[min(int(share * len(took_s)), len(took_s) - 1)], 1) if took_s else 0.0


def _least_success(seen: Measurements) -> float:
    stretches: dict[tuple[str, int], list[bool]] = {}
    for kind, due_s, _, ok in seen.done:
        stretches.setdefault((kind, int(due_s / WINDOW_S)), []).append(ok)
    return round(min(sum(each) / len(each) for each in stretches.values()), 4)


async def run_on(
    store: Store, names_s: float, queries_s: float, rise_s: float, cluster: RedisCluster | None
) -> dict[str, Any]:
    """Increase, hold and decrease the load; return the report."""
    seen, phases = Measurements(), dict[str, tuple[float, float]]()
    directory = Directory(store.channel_directory._redis, store.matrix_cells, "channel", LIMITS)
    crowd = LoadGenerator(directory, seen)
    await crowd.come(5, lambda _: (names_s, 0))
    tasks = [
        asyncio.create_task(maintain_until_cancelled(store, directory)),
        asyncio.create_task(record_sizes(directory, seen)),
    ]

    async def phase(name: str, seconds: float, pace: Callable[[float], float]) -> None:
        began_s = time.monotonic()
        await crowd.come(seconds, lambda over: (names_s * pace(over), queries_s * pace(over)))
        phases[name] = began_s, time.monotonic()

    try:
        await phase("at rest", 5, lambda _: 1)
        before = await read_usage(cluster) if cluster else {}
        await phase("growing tenfold", rise_s, lambda over: 1 + (RISES - 1) * over)
        await phase("ten times as much", 10, lambda _: RISES)
        after = await read_usage(cluster) if cluster else {}
        await phase("as before", rise_s, lambda _: 1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return summarise(seen, phases) | (busiest_primary(before, after) if cluster else {})


async def run_on_both(*, names_s: float, queries_s: float, rise_s: float) -> dict[str, Any]:
    """Run on one Redis, and then on a cluster."""
    found = {}
    async with contextlib.AsyncExitStack() as stack:
        redis = await stack.enter_async_context(PrivateRedis(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        store = await connect(Settings(redis_url=redis.url))
        stack.push_async_callback(store.close)
        found["one Redis"] = await run_on(store, names_s, queries_s, rise_s, None)
    async with contextlib.AsyncExitStack() as stack:
        cluster = RedisCluster(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        await stack.enter_async_context(cluster)
        store = await connect(Settings(redis_url=cluster.urls))
        stack.push_async_callback(store.close)
        found["a cluster of six"] = await run_on(store, names_s, queries_s, rise_s, cluster)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names-s", type=float, default=20.0)
    parser.add_argument("--queries-s", type=float, default=40.0)
    parser.add_argument("--rise-s", type=float, default=60.0)
    report = asyncio.run(run_on_both(**vars(parser.parse_args())))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
