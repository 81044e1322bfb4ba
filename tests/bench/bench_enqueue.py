"""Processor time of fanning out a version of one channel, by the number of worker processes that share the work.

Each worker is a process of its own; all use one Redis. Prints one JSON object: for each number of workers the processor
time in seconds of the busiest worker, of all workers and of Redis, and the time on the clock, each as the median of the
rounds; and the ratio of the busiest worker's time to that of a single worker.

``python -m tests.bench.bench_enqueue [--subscribers N] [--workers N] [--rounds N]``
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from service.embedded.private_redis import PrivateRedis
from service.model import Channel
from service.settings import Settings
from service.store import Store, open_store
from service.store.client import keys
from tests.support.channels import make_channel, publish
from tests.support.fan_out_worker import FanOutWorker

AT_ONCE = 500


async def subscribe_all(store: Store, channel: Channel, subscribers: int) -> None:
    """Subscribe this many users to a channel."""
    for first in range(0, subscribers, AT_ONCE):
        jids = [f"person{number}@localhost" for number in range(first, min(subscribers, first + AT_ONCE))]
        await asyncio.gather(*(store.subscriptions.subscribe(jid, channel.id) for jid in jids))


async def redis_s(store: Store) -> float:
    """Return the processor time in seconds that Redis has used."""
    info = await store.redis.call("INFO", "cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def clear_outboxes(store: Store, subscribers: int) -> None:
    """Delete the queued items, so that memory does not grow with the rounds."""
    uids = [keys.user_id(f"person{number}@localhost") for number in range(subscribers)]
    await store.redis.call_many([("UNLINK", keys.outbox(uid)) for uid in uids])


async def measure_round(store: Store, channel: Channel, workers: list[FanOutWorker], base: int) -> dict[str, float]:
    """Publish a version, and measure its fan-out."""
    await publish(store, channel, f"round {base}", base=base)
    before = [await worker.run() for worker in workers]
    redis, began_s = await redis_s(store), time.monotonic()
    await workers[0].run(channel.id)
    clock_s = time.monotonic() - began_s
    redis = await redis_s(store) - redis
    used = [await worker.run() - earlier for worker, earlier in zip(workers, before, strict=True)]
    return {"busiest_s": max(used), "all_s": sum(used), "redis_s": redis, "clock_s": clock_s}


async def measure(store: Store, url: str, subscribers: int, most_workers: int, rounds: int) -> dict[str, object]:
    """Return the figures of 1 to ``most_workers`` workers."""
    channel = await make_channel(store)
    await subscribe_all(store, channel, subscribers)
    found: dict[str, dict[str, float]] = {}
    workers: list[FanOutWorker] = []
    base = 1
    try:
        for count in range(1, most_workers + 1):
            workers.append(await FanOutWorker.start(url, f"worker {count}"))
            results = []
            for _ in range(rounds + 1):  # the first one warms up
                results.append(await measure_round(store, channel, workers, base))
                base += 1
                await clear_outboxes(store, subscribers)
            found[str(count)] = {
                name: round(statistics.median(each[name] for each in results[1:]), 4) for name in results[0]
            }
    finally:
        for worker in workers:
            await worker.kill()
    alone = found["1"]["busiest_s"]
    ratios = {count: round(each["busiest_s"] / alone, 3) for count, each in found.items()}
    return {"subscribers": subscribers, "rounds": rounds, "by_workers": found, "busiest_to_alone": ratios}


async def main(subscribers: int, workers: int, rounds: int) -> None:
    """Run the benchmark and print its results."""
    with tempfile.TemporaryDirectory(prefix="coronet-") as directory:
        async with PrivateRedis(Path(directory)) as redis:
            store = open_store(Settings(redis_url=redis.url))
            try:
                found = await measure(store, redis.url, subscribers, workers, rounds)
            finally:
                await store.close()
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(main(options.subscribers, options.workers, options.rounds))
