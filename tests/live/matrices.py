"""A matrix whose queries rise a hundredfold in a minute: ``python -m tests.live.matrices``.

All participants are processes of their own, with default settings: two that only ask, and three workers. They use a
Redis Cluster of six nodes (three primaries), and then a single Redis. The queries for one rare pair rise from 5 to 500
per second, stay, and fall to 5 again. Meanwhile names with the pair are registered, and each is searched at once.
Prints JSON:

- the share of queries that succeeded (answered within a second), in all and in the worst five seconds;
- when the matrix had its second replica, in seconds after the rate had reached the threshold of a cell, and its last
  one, in seconds after the rate had reached the highest (0 if before);
- the commands and processor time of the busiest primary, relative to the mean, while the rate was highest;
- how many seconds after the fall of the rate the matrix had a single cell again.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from service.discovery.matrix_cell import CellState
from service.discovery.search_candidates import require_all
from service.embedded.private_redis import PrivateRedis
from service.settings import Settings
from service.store import Store, open_store
from service.store.directory.matrix_access import LIMITS
from service.store.directory.matrix_directory import ContentName
from tests.live.query_process import Asked, AskingPlan
from tests.support.redis_cluster import RedisCluster
from tests.support.waiting import until

RARE = "word=rare"
NAMES = 40
OTHERS = [f"word=other{number}" for number in range(200)]
OTHERS_S = 10.0
KEPT_S = 3_600.0
LOW_S, HIGH_S = 5.0, 500.0
ASKERS, WORKERS = 2, 3
REST_S = 8.0
AFTERWARDS_S, SHRINK_WITHIN_S = 20.0, 180.0
STRETCH_S = 5.0

Usage = dict[int, tuple[int, float]]
"""Of each primary, by port: the commands of clients, and the processor time in seconds, so far."""
_ADMINISTRATION = ("cluster", "config", "hello", "info", "ping", "psync", "replconf", "client", "wait")


class Observation(msgspec.Struct):
    """What was seen of the matrix at a time: its open cells, and how many cells its record has."""

    at_s: float
    cells: int
    open_cells: int


@contextlib.asynccontextmanager
async def workers(redis_url: str, directory: Path) -> AsyncIterator[None]:
    """Run worker processes."""
    environ = {**os.environ, "CORONET_REDIS_URL": redis_url, "CORONET_METRICS_PORT": "0"}
    processes = []
    try:
        for number in range(WORKERS):
            with (directory / f"worker-{number}.log").open("wb") as log:
                command = (sys.executable, "-c", "from service.cli import main; main()", "worker")
                processes.append(await asyncio.create_subprocess_exec(*command, env=environ, stdout=log, stderr=log))
        yield
    finally:
        for process in processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in processes))


async def start_asking(plan: AskingPlan) -> asyncio.subprocess.Process:
    """Start an asking process; return it when it is ready."""
    command = (sys.executable, "-m", "tests.live.query_process", msgspec.json.encode(plan).decode())
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"\n"
    return process


async def ask(process: asyncio.subprocess.Process, begin_s: float) -> list[Asked]:
    """Let a process that is ready ask from ``begin_s`` on; return its queries."""
    told, _ = await process.communicate(f"{begin_s}\n".encode())
    return msgspec.json.decode(told, type=list[Asked])


async def register(store: Store, first: int, count: int) -> None:
    """Register names that have the rare pair and one of the others."""
    names = [ContentName(f"{n:040x}", {RARE: 200, OTHERS[n % len(OTHERS)]: 100}) for n in range(first, first + count)]
    await store.entry_directory.register(names, time.time() + KEPT_S)


async def observe(store: Store, begin_s: float, seen: list[Observation], missed: list[str]) -> None:
    """Record the size of the matrix twice a second, and register and find a name each second."""
    for turn in range(1_000_000):
        cells = await store.entry_directory.cells_of(RARE)
        # A matrix of one cell has no record of its state.
        opened = sum(answer.is_in(CellState.OPEN) for _, answer in cells) or 1
        seen.append(Observation(time.monotonic() - begin_s, len(cells), opened))
        if turn % 2:
            await register(store, NAMES + turn, 1)
            found = await store.entry_directory.find(require_all([RARE]), (), NAMES + turn)
            if f"{NAMES + turn:040x}" not in found.names:
                missed.append(f"{turn}")
        await asyncio.sleep(0.5)


async def read_usage(cluster: RedisCluster) -> Usage:
    """Return the number of commands and the processor time of each primary so far."""
    found = {}
    for port in await cluster.masters():
        stats, cpu = await cluster.ask(port, "INFO", "commandstats"), await cluster.ask(port, "INFO", "cpu")
        names = {name: name.removeprefix("cmdstat_").split("|")[0] for name in stats}
        calls = sum(stats[name]["calls"] for name, command in names.items() if command not in _ADMINISTRATION)
        found[port] = calls, cpu["used_cpu_user"] + cpu["used_cpu_sys"]
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


async def run_on(
    store: Store, redis_url: str, directory: Path, *, rise_s: float, hold_s: float, cluster: RedisCluster | None
) -> dict[str, Any]:
    """Run the load; return the report."""
    await register(store, 0, NAMES)
    seen, missed = list[Observation](), list[str]()
    usage: list[Usage] = []
    async with workers(redis_url, directory):
        top_s, drop_s = REST_S + rise_s, REST_S + rise_s + hold_s
        rates = (OTHERS_S / ASKERS, LOW_S / ASKERS, HIGH_S / ASKERS)
        plan = AskingPlan(redis_url, RARE, OTHERS, *rates, REST_S, top_s, drop_s, drop_s + AFTERWARDS_S)

        async def all_joined() -> bool:
            return len((await store.ring.view()).ids) == WORKERS

        await until(all_joined, "the workers are in the ring", within_s=60)
        ready = await asyncio.gather(*(start_asking(plan) for _ in range(ASKERS)))
        begin_s = time.monotonic() + 0.5
        asking = [asyncio.create_task(ask(process, begin_s)) for process in ready]
        observing = asyncio.create_task(observe(store, begin_s, seen, missed))
        for at_s in (top_s + hold_s / 3, drop_s - 1):
            await asyncio.sleep(begin_s + at_s - time.monotonic())
            usage += [await read_usage(cluster)] if cluster else []
        while time.monotonic() < begin_s + drop_s + SHRINK_WITHIN_S:
            await asyncio.sleep(1)
            if all(task.done() for task in asking) and seen[-1].cells == 1:
                break
        observing.cancel()
        await asyncio.gather(observing, return_exceptions=True)
        asked = [each for task in asking for each in await task]
    report = summarise(asked, seen, top_s=top_s, drop_s=drop_s)
    report |= {"names_registered_meanwhile_and_missed": len(missed)}
    return report | (busiest_primary(*usage) if cluster else {})


def summarise(asked: Sequence[Asked], seen: Sequence[Observation], *, top_s: float, drop_s: float) -> dict[str, Any]:
    """Return the report of a run, whose rate was highest from ``top_s`` to ``drop_s``."""
    stretches: dict[int, list[bool]] = {}
    for each in asked:
        stretches.setdefault(int(each.due_s // STRETCH_S), []).append(each.succeeded)
    took_ms = sorted(1000 * each.took_s for each in asked if top_s <= each.due_s < drop_s)
    threshold_s = REST_S + (top_s - REST_S) * (LIMITS.queries_s - LOW_S) / (HIGH_S - LOW_S)
    held = [each for each in seen if top_s <= each.at_s < drop_s]
    most = max(each.open_cells for each in held)
    second_s = next((each.at_s for each in seen if each.open_cells > 1), None)
    last_s = next(each.at_s for each in seen if each.open_cells == most)
    shrunk_s = next((each.at_s for each in seen if each.at_s > drop_s and each.cells == 1), None)
    return {
        "queries": len(asked),
        "succeeded": round(sum(each.succeeded for each in asked) / len(asked), 4),
        "succeeded_in_the_worst_5_s": round(min(sum(part) / len(part) for part in stretches.values()), 4),
        "queries_s_at_the_top": round(len(took_ms) / (drop_s - top_s)),
        "ms_at_the_top": {f"p{share}": round(took_ms[len(took_ms) * share // 100], 1) for share in (50, 99)},
        "replicas_at_the_top": most,
        "second_replica_s_after_threshold": None if second_s is None else round(second_s - threshold_s, 1),
        "last_replica_s_after_top": round(max(0.0, last_s - top_s), 1),
        "one_cell_s_after_fall": None if shrunk_s is None else round(shrunk_s - drop_s, 1),
    }


async def run_on_both(*, rise_s: float, hold_s: float, only_cluster: bool) -> dict[str, Any]:
    """Run on a cluster, and then on one Redis."""
    found = {}
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = await stack.enter_async_context(RedisCluster(directory))
        store = open_store(Settings(redis_url=cluster.urls))
        stack.push_async_callback(store.close)
        found["a cluster of six"] = await run_on(
            store, cluster.urls, directory, rise_s=rise_s, hold_s=hold_s, cluster=cluster
        )
    if only_cluster:
        return found
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = await stack.enter_async_context(PrivateRedis(directory))
        store = open_store(Settings(redis_url=redis.url))
        stack.push_async_callback(store.close)
        found["one Redis"] = await run_on(store, redis.url, directory, rise_s=rise_s, hold_s=hold_s, cluster=None)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rise-s", type=float, default=60.0)
    parser.add_argument("--hold-s", type=float, default=30.0)
    parser.add_argument("--only-cluster", action="store_true")
    report = asyncio.run(run_on_both(**vars(parser.parse_args())))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
