"""What a fleet costs while nothing changes: processor time, Redis's log and memory, for each channel and interval.

Run it alone on the machine: ``python -m tests.bench.bench_upkeep --channels 5000``. Three workers own channels that are
hardly ever polled and never change. Prints one JSON object. An *interval* is the maintenance interval of the fleet, in
which owners confirm their assignments; figures per channel and interval are differences over the measurement divided by
the number of channels and intervals. Polls that fall into it are included and counted.

With ``--cold-start``, all programs are then started again with a poll interval of ``--round`` seconds and a budget of
one poll per channel and interval. The result has the time from the start of the workers until as many polls were made
as there are channels, the most requests per second in any 5 s, the budget, and the memory of the workers at the end.
With ``--default-settings``, maintenance and leases have the default intervals instead of those of a trial.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from service.corona.fleet_policy import FleetObjective
from service.feeds.canonical_urls import channel_id
from service.model import Channel, Validators
from service.settings import PRESETS, Settings
from service.store import Store
from service.store.channels.channel_records import Snapshot
from tests.bench.bench_checks import Publisher, run_publisher
from tests.bench.bench_idle import cpu_s, memory_mb, process_tree
from tests.support.product_process import Product, running
from workers.ownership.directory_registration import MAX_CHECKS

POLL_INTERVAL_S = 10_000_000.0
WINDOW_S = 5.0
BATCH = 200


async def add_channels(store: Store, origin: str, count: int) -> None:
    """Add ``count`` channels that an admin has listed, so that they are polled although nobody is subscribed."""
    for first in range(0, count, BATCH):
        urls = [f"{origin}/feeds/{number}.xml" for number in range(first, min(count, first + BATCH))]
        await asyncio.gather(
            *(
                store.channels.create(
                    Channel(channel_id(url), url, created_s=time.time(), private=True, listed=True),
                    Snapshot(Validators(), b"", url, origin),
                    (),
                    time.time(),
                )
                for url in urls
            )
        )


async def redis_info(store: Store) -> dict[str, Any]:
    """Return the statistics of the product's Redis, as the command INFO gives them."""
    found: dict[str, Any] = await store.redis.call("INFO", "everything")
    return found


class Reading:
    """The counters of a running product at one time."""

    def __init__(self, product: Product, info: dict[str, Any]) -> None:
        self.at_s = time.monotonic()
        self.workers_s = sum(cpu_s(pid) for worker in product.pids("workers") for pid in process_tree(worker))
        self.redis_s = float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
        self.log_bytes = int(info["aof_current_size"])
        self.commands = int(info["total_commands_processed"])
        self.received_bytes = int(info["total_net_input_bytes"])
        self.sent_bytes = int(info["total_net_output_bytes"])


async def measure(product: Product, store: Store, channels: int, interval_s: float, for_s: float) -> dict[str, object]:
    """Return the figures of ``for_s`` seconds at rest; ``interval_s`` is the maintenance interval."""
    before = Reading(product, await redis_info(store))
    await asyncio.sleep(for_s)
    after = Reading(product, await redis_info(store))
    took_s = after.at_s - before.at_s
    parts = channels * took_s / interval_s
    return {
        "worker_us": round((after.workers_s - before.workers_s) / parts * 1e6, 2),
        "redis_us": round((after.redis_s - before.redis_s) / parts * 1e6, 2),
        "redis_log_bytes": round((after.log_bytes - before.log_bytes) / parts, 1),
        "redis_commands": round((after.commands - before.commands) / parts, 4),
        "redis_received_bytes": round((after.received_bytes - before.received_bytes) / parts, 1),
        "redis_sent_bytes": round((after.sent_bytes - before.sent_bytes) / parts, 1),
        "worker_cores": round((after.workers_s - before.workers_s) / took_s, 4),
        "redis_cores": round((after.redis_s - before.redis_s) / took_s, 4),
    }


def memory_per_worker(product: Product) -> list[float]:
    """Return the memory of each worker with its parser processes, in MB."""
    return [round(sum(map(memory_mb, process_tree(pid))), 1) for pid in product.pids("workers")]


async def measure_cold_start(
    product: Product, publisher: Publisher, channels: int, round_s: float, began_s: float
) -> dict[str, object]:
    """Return the figures of the first round of polls after a start of all workers at ``began_s`` (monotonic)."""
    budget_per_s = channels / round_s
    first = await publisher.answered()
    counts = [(began_s, 0)]
    while counts[-1][1] < channels and time.monotonic() - began_s < 3 * round_s + 120:
        await asyncio.sleep(1.0)
        counts.append((time.monotonic(), await publisher.answered() - first))
    rates = [
        (later - count) / (later_s - at_s)
        for (at_s, count), (later_s, later) in zip(counts, counts[int(WINDOW_S) :], strict=False)
    ]
    return {
        "round_s": round(counts[-1][0] - began_s, 1),
        "polls": counts[-1][1],
        "budget_per_s": round(budget_per_s, 2),
        "highest_per_s": round(max(rates, default=0.0), 2),
        "worker_cpu_s": round(sum(cpu_s(pid) for worker in product.pids("workers") for pid in process_tree(worker)), 1),
        "mb_per_worker": memory_per_worker(product),
    }


async def measure_rest(
    product: Product, publisher: Publisher, given: argparse.Namespace, interval_s: float
) -> dict[str, object]:
    """Add the channels, wait until they are settled, and return the figures at rest."""
    async with product.store() as store:
        empty = await redis_info(store)
        began_s = time.monotonic()
        await add_channels(store, publisher.origin, given.channels)
        added_s = time.monotonic() - began_s
        # The log must not be rewritten, that is, become shorter, during the measurement.
        await store.redis.call("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
        # At first, owners check whether the entries of all their new channels are registered.
        checks_s = given.channels * interval_s / (MAX_CHECKS * given.workers)
        await asyncio.sleep(given.settle or max(60.0, 1.5 * checks_s))
        polls = await publisher.answered()
        found = await measure(product, store, given.channels, interval_s, given.seconds)
        polls = await publisher.answered() - polls
        used = int((await redis_info(store))["used_memory"]) - int(empty["used_memory"])
    return {
        "channels": given.channels,
        "workers": given.workers,
        "interval_s": interval_s,
        "polls_per_s": round(polls / given.seconds, 2),
        "added_in_s": round(added_s, 1),
        "per_channel_and_interval": found,
        "redis_bytes_per_channel": round(used / given.channels),
        "mb_per_worker": memory_per_worker(product),
    }


async def main(given: argparse.Namespace) -> None:
    """Run the benchmark and print its results."""
    os.environ["CORONET_LONGEST_WAIT_S"] = str(POLL_INTERVAL_S)
    defaults = Settings()
    interval_s = float(str(PRESETS["trial"]["maintenance_interval_s"]))
    if given.default_settings:
        interval_s = defaults.maintenance_interval_s
        os.environ["CORONET_MAINTENANCE_INTERVAL_S"] = str(interval_s)
        os.environ["CORONET_LEASE_TTL_S"] = str(defaults.lease_ttl_s)
    options = ("--workers", str(given.workers), "--no-sample-feeds", "--poll-interval")
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        async with run_publisher() as publisher:
            async with running(state, *options, str(POLL_INTERVAL_S)) as product:
                found = await measure_rest(product, publisher, given, interval_s)
                async with product.store() as store:
                    objective = FleetObjective(
                        longest_wait_s=POLL_INTERVAL_S, budget_polls_per_minute=60 * given.channels / given.round
                    )
                    await store.fleet_policy.set(objective)
            if given.cold_start:
                began_s = time.monotonic()
                async with running(state, *options, str(given.round)) as product:
                    found["cold_start"] = await measure_cold_start(
                        product, publisher, given.channels, given.round, began_s
                    )
        print(json.dumps(found, indent=1))  # noqa: T201 - the result


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--channels", type=int, default=5_000)
    arguments.add_argument("--workers", type=int, default=3)
    arguments.add_argument("--settle", type=float, default=0.0, help="seconds before the measurement; 0: by channels")
    arguments.add_argument("--seconds", type=float, default=60.0, help="seconds of the measurement")
    arguments.add_argument("--default-settings", action="store_true")
    arguments.add_argument("--cold-start", action="store_true")
    arguments.add_argument("--round", type=float, default=900.0, help="poll interval after the cold start, in seconds")
    asyncio.run(main(arguments.parse_args()))
