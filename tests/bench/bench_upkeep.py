"""What a fleet costs while nothing changes: processor time, Redis's log and memory, for each channel and interval.

Run it alone on the machine: ``python -m tests.bench.bench_upkeep --channels 5000``. Three workers own channels that are
hardly ever polled and never change. Prints one JSON object. An *interval* is the maintenance interval of the fleet, in
which owners repeat their assignments; figures per channel and interval are differences over the measurement divided by
the number of channels and intervals. Polls that fall into it are included and counted.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from service.feeds.urls import channel_id
from service.model import Channel, Validators
from service.settings import PRESETS
from service.store import Store
from service.store.channels.channel_records import Snapshot
from tests.bench.bench_checks import run_publisher
from tests.bench.bench_idle import cpu_s, memory_mb, process_tree
from tests.support.product_process import Product, running

POLL_INTERVAL_S = 10_000.0
INTERVAL_S = float(str(PRESETS["trial"]["maintenance_interval_s"]))
"""The maintenance interval of a product that allows private addresses, as this one does."""
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


async def measure(product: Product, store: Store, channels: int, for_s: float) -> dict[str, object]:
    """Return the figures of ``for_s`` seconds at rest."""
    before = Reading(product, await redis_info(store))
    await asyncio.sleep(for_s)
    after = Reading(product, await redis_info(store))
    took_s = after.at_s - before.at_s
    parts = channels * took_s / INTERVAL_S
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


async def main(channels: int, workers: int, settle_s: float, for_s: float) -> None:
    """Run the benchmark and print its results."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--workers", str(workers), "--no-sample-feeds", "--poll-interval", str(POLL_INTERVAL_S))
        async with (
            run_publisher() as publisher,
            running(Path(folder) / "state", *options) as product,
            product.store() as store,
        ):
            empty = await redis_info(store)
            began_s = time.monotonic()
            await add_channels(store, publisher.origin, channels)
            added_s = time.monotonic() - began_s
            # The log must not be rewritten, that is, become shorter, during the measurement.
            await store.redis.call("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
            await asyncio.sleep(settle_s)
            polls = await publisher.answered()
            found = await measure(product, store, channels, for_s)
            polls = await publisher.answered() - polls
            info = await redis_info(store)
            memory = [sum(map(memory_mb, process_tree(pid))) for pid in product.pids("workers")]
            print(  # noqa: T201 - the result
                json.dumps(
                    {
                        "channels": channels,
                        "workers": workers,
                        "interval_s": INTERVAL_S,
                        "polls_per_s": round(polls / for_s, 2),
                        "added_in_s": round(added_s, 1),
                        "per_channel_and_interval": found,
                        "redis_bytes_per_channel": round(
                            (int(info["used_memory"]) - int(empty["used_memory"])) / channels
                        ),
                        "mb_per_worker": [round(one, 1) for one in memory],
                    },
                    indent=1,
                )
            )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--channels", type=int, default=5_000)
    arguments.add_argument("--workers", type=int, default=3)
    arguments.add_argument("--settle", type=float, default=60.0, help="seconds before the measurement begins")
    arguments.add_argument("--seconds", type=float, default=60.0, help="seconds of the measurement")
    given = arguments.parse_args()
    asyncio.run(main(given.channels, given.workers, given.settle, given.seconds))
