"""Subscriptions under a burst: ``python -m tests.live.shards [--subscriptions N] [--capacity C] [--burst-s S]``.

A Redis Cluster of six nodes has 200,000 subscriptions, 20 % of them to one channel. A burst on this channel splits its
key groups; maintainers are killed at every step of a move, and a master during the burst. Afterwards groups merge. All
the time users subscribe and unsubscribe. Prints measurements as JSON; only the channel index is written, not the user
index.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from service.clash.group_search import DepthCache
from service.clash.key_groups import KeyGroup
from service.clash.prefix_query import PrefixQuery, ReadDonor, ReadLeaf
from service.clash.server_table import LEAF_STATES
from service.errors import StoreUnavailable
from service.settings import Settings
from service.store import Store, open_store
from service.store.client import keys
from service.store.subscriptions.keyspace_store import record_id
from tests.live.shard_processes import all_subscriptions, cid, site, sizes, uid
from tests.support.redis_cluster import RedisCluster
from tests.support.waiting import until

WRITES_PER_S = 200

WHEN = ("before", "after")
SPLITTING = ("SplitGroup", "AcceptKeyGroup", "Fetch", "Put", "Settle", "Finish")
MERGING = ("MergeGroup", "GiveKeyGroup", "TakeBack", "Fetch", "Put", "Forget", "Finish")
"""The steps at which keepers are killed. A merge that is declined, and so abandoned, cannot be had to order."""


class Measurements:
    """The measurements of a run."""

    def __init__(self) -> None:
        self.waits_s: list[tuple[float, float]] = []
        self.refused = 0
        self.failover_s = 0.0
        self.deaths: Counter[str] = Counter()
        self.reads: list[list[float]] = []
        self.trees: list[dict[str, Any]] = []


async def load_subscriptions(store: Store, subscriptions: int) -> float:
    """Write all subscriptions to the index; return the number per second."""
    started_s, all_of_them = time.monotonic(), all_subscriptions(subscriptions)

    async def some() -> None:
        while stretch := list(itertools.islice(all_of_them, 1_000)):
            await asyncio.gather(
                *(store.channel_index._write(site(rank), cid(rank), uid(number), 1) for rank, number in stretch)
            )

    await asyncio.gather(some(), some(), some())
    return subscriptions / (time.monotonic() - started_s)


async def change_subscriptions(store: Store, held: dict[tuple[int, int], int], seen: Measurements) -> None:
    """Subscribe and unsubscribe users, half of them for the most popular channel, and record the delays."""
    chosen = random.Random(5)  # noqa: S311 - a workload
    asked: set[asyncio.Task[None]] = set()
    for seq in itertools.count(10):
        rank = 0 if chosen.random() < 0.5 else chosen.randrange(1, 10_000)
        person = 1_000_000 + chosen.randrange(5_000)
        task = asyncio.create_task(_change(store, held, seen, (rank, person), seq))
        asked.add(task)
        task.add_done_callback(asked.discard)
        await asyncio.sleep(1 / WRITES_PER_S)


async def _change(
    store: Store, held: dict[tuple[int, int], int], seen: Measurements, who: tuple[int, int], seq: int
) -> None:
    started_s = time.monotonic()
    present = held.get(who, 0) <= 0
    held[who] = seq if present else -seq
    while True:
        try:
            await store.channel_index._write(site(who[0]), cid(who[0]), uid(who[1]), seq, present=present)
            break
        except StoreUnavailable:
            seen.refused += 1
            await asyncio.sleep(0.05)
    seen.waits_s.append((time.time(), time.monotonic() - started_s))


async def start_process(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.live.shard_processes", *arguments, stdout=PIPE, stderr=asyncio.subprocess.DEVNULL
    )


async def run_balancers(url: str, capacity: float, seen: Measurements, steps: Sequence[str]) -> None:
    """Run balancers in sequence: two that are killed at each kind of step, then one that survives."""
    for dies in [*(f"{when} {step}" for step in steps for when in WHEN), ""]:
        keeper = await start_process("keep", url, f"--capacity={capacity}", f"--dies={dies}")
        try:
            assert keeper.stdout is not None
            while line := await keeper.stdout.readline():
                seen.deaths[" ".join(msgspec.json.decode(line))] += 1
            await keeper.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                keeper.kill()
            await keeper.wait()


async def run_burst(url: str, subscriptions: int, seen: Measurements) -> None:
    reader = await start_process("read", url, f"--subscriptions={subscriptions}")
    try:
        assert reader.stdout is not None
        while line := await reader.stdout.readline():
            seen.reads.append(msgspec.json.decode(line))
    finally:
        with contextlib.suppress(ProcessLookupError):
            reader.kill()
        await reader.wait()


async def record_leaves(store: Store, seen: Measurements) -> None:
    """Record, every two seconds, the leaf groups of the most popular channel and their keyspaces."""
    layout_group = store.channel_index._layout.channel_group(site(0), cid(0))
    while True:
        with contextlib.suppress(StoreUnavailable, OSError):
            tables = await store.keyspaces.tables(range(store.keyspaces.map.count))
            leaves = [
                (table.keyspace, group)
                for table in tables
                for group, entry in table.entries.items()
                if entry.state in LEAF_STATES
            ]
            hot = {keyspace for keyspace, group in leaves if group.intersection(layout_group) is not None}
            masters = {store.redis.node_of(("HLEN", keys.keyspace(keyspace)[0])) for keyspace in hot}
            seen.trees.append(
                {
                    "at_s": time.time(),
                    "leaves": len(leaves),
                    "hot_keyspaces": len(hot),
                    "hot_primaries": len(masters),
                    "moves": sum(table.moves for table in tables),
                    "under_way": sum(table.move is not None for table in tables),
                }
            )
        await asyncio.sleep(2)


async def measure_failover(cluster: RedisCluster, lost: int, seen: Measurements) -> None:
    """Measure the time until the cluster has a new master in place of a lost one."""
    started_s = time.monotonic()
    (asked, *_) = [port for port in cluster.ports if port != lost]

    async def replaced() -> bool:
        return lost not in {int(master[1]) for _, _, master, *_ in await cluster.ask(asked, "CLUSTER", "SLOTS")}

    await until(replaced, "another master has its slots", within_s=30)
    seen.failover_s = time.monotonic() - started_s


async def check_index(store: Store, subscriptions: int, held: dict[tuple[int, int], int]) -> dict[str, int]:
    """Read all keys, and compare them with the acknowledged changes."""
    expected = {record_id(cid(rank), uid(number)) for rank, number in all_subscriptions(subscriptions)}
    expected |= {record_id(cid(rank), uid(person)) for (rank, person), seq in held.items() if seq > 0}
    walk = PrefixQuery(KeyGroup(0, 0, store.keyspaces.bits), store.keyspaces.map, DepthCache(), 2_000)
    found: Counter[str] = Counter()
    while walk.request is not None:
        match walk.request:
            case ReadLeaf() as question:
                walk.on_leaf_page(*await store.keyspaces.read_leaf(question))
                found.update(record.id for record in walk.records)
            case ReadDonor() as question:
                walk.on_donor_page(question.move, await store.keyspaces.read_donor(question))
    return {
        "expected": len(expected),
        "found": found.total(),
        "lost": len(expected - found.keys()),
        "not_ended": len(found.keys() - expected),
        "doubled": sum(number - 1 for number in found.values()),
    }


def quantile(waits: list[float], share: float) -> float:
    """Return a quantile in milliseconds."""
    return round(1000 * sorted(waits)[min(int(share * len(waits)), len(waits) - 1)], 2) if waits else 0.0


def summarise(seen: Measurements, phases: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return the measurements by phase."""
    by_phase = {}
    for name, (start_s, end_s) in phases.items():
        waits = [wait for at_s, wait in seen.waits_s if start_s <= at_s < end_s]
        trees = [tree for tree in seen.trees if start_s <= tree["at_s"] < end_s] or [{}]
        by_phase[name] = {
            "seconds": round(end_s - start_s, 1),
            "writes": len(waits),
            "writes_over_50_ms": sum(wait > 0.05 for wait in waits),
            "write_ms": {f"p{share * 100:g}": quantile(waits, share) for share in (0.5, 0.99, 0.999)},
            "write_ms_max": round(1000 * max(waits, default=0), 1),
            "most": {
                name: max(tree.get(name, 0) for tree in trees) for name in ("leaves", "hot_keyspaces", "hot_primaries")
            },
            "last": {name: value for name, value in trees[-1].items() if name != "at_s"},
        }
    reads = seen.reads
    return {
        "phases": by_phase,
        "write_ms_p99_of_all": quantile([wait for _, wait in seen.waits_s], 0.99),
        "writes": len(seen.waits_s),
        "writes_over_50_ms": sum(wait > 0.05 for _, wait in seen.waits_s),
        "failover_of_redis_itself_ms": round(1000 * seen.failover_s),
        "writes_repeated": seen.refused,
        "keepers_killed": dict(sorted(seen.deaths.items())),
        "walks_of_the_hot_channel": len(reads),
        "walks_missed": sum(int(read[3]) for read in reads),
        "walks_doubled": sum(int(read[4]) for read in reads),
        "reads_failed": sum(int(read[5]) for read in reads),
        "walked_per_s": round(sum(read[2] for read in reads) / max(sum(read[1] for read in reads), 1e-9)),
        "slowest_page_ms": round(1000 * max((read[6] for read in reads), default=0), 1),
    }


async def run_all(*, subscriptions: int, capacity: float, burst_s: float, cold_s: float) -> dict[str, Any]:
    """Run all phases; return the report."""
    seen, held = Measurements(), dict[tuple[int, int], int]()
    phases: dict[str, tuple[float, float]] = {}
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = await stack.enter_async_context(RedisCluster(directory))
        store = open_store(Settings(redis_url=cluster.urls))
        stack.push_async_callback(store.close)
        await store.redis.call("HSET", keys.channel(cid(0)), "url", f"https://{site(0)}/0", "site", site(0))
        per_s = await load_subscriptions(store, subscriptions)
        tasks = list[asyncio.Task[None]]()

        async def stop() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        stack.push_async_callback(stop)

        async def phase(name: str, seconds: float) -> None:
            started_s = time.time()
            await asyncio.sleep(seconds)
            phases[name] = started_s, time.time()

        tasks += [
            asyncio.create_task(change_subscriptions(store, held, seen)),
            asyncio.create_task(record_leaves(store, seen)),
        ]
        resting = asyncio.create_task(run_balancers(cluster.urls, capacity, seen, ()))
        tasks.append(resting)
        await phase("at rest", 5)
        resting.cancel()
        mortal = asyncio.create_task(run_balancers(cluster.urls, capacity, seen, SPLITTING))
        tasks.append(mortal)
        reading = asyncio.create_task(run_burst(cluster.urls, subscriptions, seen))
        tasks.append(reading)
        await phase("burst", burst_s)
        lost = (await cluster.masters())[0]
        tasks.append(asyncio.create_task(measure_failover(cluster, lost, seen)))
        await cluster.kill(lost)
        await phase("burst with a master dead", 10)
        await cluster.start_node(lost)
        reading.cancel()
        mortal.cancel()
        tasks.append(asyncio.create_task(run_balancers(cluster.urls, capacity, seen, MERGING)))
        await phase("cold", cold_s)
        await stop()
        lies = await check_index(store, subscriptions, held)
    return {
        "subscriptions": subscriptions,
        "hot": sizes(subscriptions)[0],
        "capacity": capacity,
        "loaded_per_s": round(per_s),
        **summarise(seen, phases),
        "audit": lies,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=200_000)
    parser.add_argument("--capacity", type=float, default=8_000.0)
    parser.add_argument("--burst-s", type=float, default=150.0)
    parser.add_argument("--cold-s", type=float, default=120.0)
    given = parser.parse_args()
    found = asyncio.run(run_all(**vars(given)))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
