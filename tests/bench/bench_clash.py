"""Cost of subscriptions in key groups: subscribing, enumeration by a fan-out, and Redis's memory.

A population with the skew of feed directories (Zipf with exponent 1, one channel with a fifth of all subscriptions)
subscribes through one process; then the most popular channel is enumerated like in a fan-out. Each result is compared
with bare Redis in the same run: as many single writes, a scan of one hash, and one sorted set with the same content.

``python -m tests.bench.bench_clash [--subscriptions N] [--channels N]`` prints JSON.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from service.embedded.private_redis import PrivateRedis
from service.feeds.canonical_urls import channel_id
from service.model import ChannelId
from service.settings import Settings
from service.store import Store, open_store
from service.store.client import keys
from tests.support.channels import make_channel

AT_ONCE = 500
PAGE = 1_000
HOTTEST_SHARE = 0.2
SITES = 2_000
ROUNDS = 3


def population(subscriptions: int, channels: int) -> list[tuple[str, str]]:
    """Return the (user, URL) pairs of all subscriptions in random order."""
    drawn = random.Random(5)  # noqa: S311 - repeatable, not secret
    urls = [f"https://site{number % SITES}.example/{number}" for number in range(channels)]
    people = int(subscriptions * HOTTEST_SHARE)
    pairs = {(f"person{person}@localhost", urls[0]) for person in range(people)}
    weights = list(accumulate(1 / rank for rank in range(2, channels + 1)))
    while len(pairs) < subscriptions:
        (url,) = drawn.choices(urls[1:], cum_weights=weights)
        pairs.add((f"person{drawn.randrange(people)}@localhost", url))
    shuffled = sorted(pairs)
    drawn.shuffle(shuffled)
    return shuffled


async def redis_memory_bytes(store: Store) -> int:
    """Return Redis's memory in bytes."""
    return int((await store.redis.call("INFO", "memory"))["used_memory"])


async def measure_subscribing(store: Store, pairs: Sequence[tuple[str, ChannelId]]) -> float:
    """Subscribe all pairs; return subscriptions per second."""
    began = time.perf_counter()
    for first in range(0, len(pairs), AT_ONCE):
        some = pairs[first : first + AT_ONCE]
        await asyncio.gather(*(store.subscriptions.subscribe(jid, cid) for jid, cid in some))
    return len(pairs) / (time.perf_counter() - began)


async def measure_enumeration(store: Store, cid: ChannelId) -> tuple[int, float, float]:
    """Enumerate a channel's subscribers; return their number, the rate, and the rate per second of CPU time."""
    found, cursor, began, busy = 0, "", time.perf_counter(), time.process_time()
    while True:
        entries, cursor = await store.channel_index.page(cid, cursor, PAGE)
        found += len(entries)
        if not cursor:
            return found, found / (time.perf_counter() - began), found / (time.process_time() - busy)


async def measure_bare_redis(
    store: Store, pairs: Sequence[tuple[str, ChannelId]], hottest: ChannelId
) -> dict[str, float]:
    """Return the figures of Redis alone: concurrent writes, reads of a hash page by page, and a sorted set's memory."""
    entries = [(keys.user_id(jid), cid) for jid, cid in pairs]
    before, began = await redis_memory_bytes(store), time.perf_counter()
    for first in range(0, len(entries), AT_ONCE):
        some = entries[first : first + AT_ONCE]
        await store.redis.call_many([("ZADD", "bare", 0, bytes.fromhex(cid) + uid.encode()) for uid, cid in some])
    written_s, grown = time.perf_counter() - began, await redis_memory_bytes(store) - before
    own = [value for uid, cid in entries if cid == hottest for value in (uid, 1)]
    await store.redis.call("HSET", "hash", *own)
    began, cursor, found = time.perf_counter(), "0", 0
    while True:
        following, some_found = await store.redis.call("HSCAN", "hash", cursor, "COUNT", PAGE)
        found += len([(uid.decode(), int(seq)) for uid, seq in some_found.items()])
        cursor = str(int(following))
        if cursor == "0":
            break
    walked_s = time.perf_counter() - began
    await store.redis.call("DEL", "bare", "hash")
    return {"writes_per_s": len(entries) / written_s, "walk_per_s": found / walked_s, "bytes": grown / len(entries)}


async def measure(subscriptions: int, channels: int) -> dict[str, float]:
    """Run all measurements and return the figures."""
    with tempfile.TemporaryDirectory() as directory:
        async with PrivateRedis(Path(directory)) as redis:
            store = open_store(Settings(redis_url=redis.url))
            try:
                return await _measure(store, subscriptions, channels)
            finally:
                await store.close()


async def _measure(store: Store, subscriptions: int, channels: int) -> dict[str, float]:
    pairs = population(subscriptions, channels)
    urls = sorted({url for _, url in pairs})
    for first in range(0, len(urls), AT_ONCE):
        await asyncio.gather(*(make_channel(store, url) for url in urls[first : first + AT_ONCE]))
    wanted = [(jid, channel_id(url)) for jid, url in pairs]
    before = await redis_memory_bytes(store)
    rate = await measure_subscribing(store, wanted)
    grown = await redis_memory_bytes(store) - before
    index = sum(
        await store.redis.call_many([("MEMORY", "USAGE", name, "SAMPLES", 0) for name in await _of_index(store)])
    )
    people = sorted({jid for jid, _ in pairs})
    held = await store.redis.call_many(
        [("MEMORY", "USAGE", keys.user_index(keys.user_id(jid)), "SAMPLES", 0) for jid in people]
    )
    hottest = channel_id("https://site0.example/0")
    rounds = [await measure_enumeration(store, hottest) for _ in range(ROUNDS)]
    assert {found for found, _, _ in rounds} == set(await store.channel_index.count([hottest]))
    alone = await measure_bare_redis(store, wanted, hottest)
    return {
        "subscriptions": len(pairs),
        "people": len(people),
        "subscribes_per_s": round(rate),
        "subscribes_to_bare_writes": round(rate / alone["writes_per_s"], 3),
        "enumerated_per_s": round(max(wall for _, wall, _ in rounds)),
        "enumerated_per_cpu_s": round(max(busy for _, _, busy in rounds)),
        "enumerated_to_hash_walk": round(max(wall for _, wall, _ in rounds) / alone["walk_per_s"], 2),
        "bytes_per_subscription": round((index + sum(held)) / len(pairs), 1),
        "bytes_in_channel_index": round(index / len(pairs), 1),
        "bytes_in_user_index": round(sum(held) / len(pairs), 1),
        "bytes_with_what_is_known_of_people": round(grown / len(pairs), 1),
        "bytes_in_a_sorted_set": round(alone["bytes"], 1),
    }


async def _of_index(store: Store) -> list[str]:
    names = [name for number in range(store.keyspaces.map.count) for name in keys.keyspace(number)]
    there = await store.redis.call_many([("EXISTS", name) for name in names])
    return [name for name, exists in zip(names, there, strict=True) if exists]


def main() -> None:
    """Run the benchmark and print its results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--subscriptions", type=int, default=200_000)
    parser.add_argument("--channels", type=int, default=10_000)
    asked = parser.parse_args()
    json.dump(asyncio.run(measure(asked.subscriptions, asked.channels)), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
