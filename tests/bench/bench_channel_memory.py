"""Redis memory of channels at rest, and of the log of a channel that changes every minute.

``python -m tests.bench.bench_channel_memory --channels 5000`` starts a Redis of its own and prints one JSON object.

``channel`` concerns feeds with one entry, a day after they were created: adopted, polled 20 times by three workers,
with an ETag, a poll rate history, a content name and three subscribers. ``bytes`` is the growth of used_memory per
channel, without what the subscriptions add: ``subscriptions_bytes``. ``key_bytes`` is MEMORY USAGE by kind of key.
``week`` concerns channels that change every minute for a week, with entries of three lengths, and a subscriber who is
a day behind.
``state_us`` is the processor time, of this process and of Redis, for reading a channel's state.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from bots.delivery.batch_renderer import load_versions
from service.corona.update_rates import history_from_dates
from service.embedded.private_redis import PrivateRedis
from service.feeds.canonical_urls import channel_id
from service.feeds.channel_health import PollReport
from service.feeds.entries.duplicate_articles import hash_version
from service.feeds.sandbox.parser_handlers import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, Document
from service.model import Channel, ChannelId, PollResult, Validators
from service.search.searcher import read_channel_name
from service.settings import Settings
from service.store import Store, opened
from service.store.channels.channel_records import Snapshot
from service.store.client import keys
from tests.support.channels import make_channel
from tests.support.ticker import Ticker

NODES = tuple(digit * 40 for digit in "37d")
BATCH = 100
MINUTE_S = 60.0
DAY_VERSIONS = 1_440
READ_TOGETHER = 16
FEED = """<?xml version="1.0"?><rss version="2.0"><channel><title>Notes from garden {n}</title>
<link>https://garden-{n}.example.org/</link><description>What grows</description><language>en</language>
<generator>https://wordpress.org/?v=6.8.1</generator>
<item><title>First seedlings of year {n}</title><link>https://garden-{n}.example.org/2026/11/first-seedlings/</link>
<guid isPermaLink="false">https://garden-{n}.example.org/?p={n}</guid><pubDate>Mon, 02 Nov 2026 08:15:00 +0000</pubDate>
<category>garden</category><description>Today the first tomatoes of batch {n} came up, two weeks earlier than last year.
I keep them on the windowsill until the nights are warmer, then they go outside.</description></item></channel></rss>"""


async def add_channels(store: Store, first: int, count: int) -> list[ChannelId]:
    """Add channels with the state that real ones have; return their ids."""
    added = [add_channel(store, number) for number in range(first, first + count)]
    return list(await asyncio.gather(*added))


async def add_channel(store: Store, number: int) -> ChannelId:
    """Add the channel of this number; return its id."""
    now_s = time.time()
    url = f"https://garden-{number}.example.org/feed/"
    document = Document(FEED.format(n=number).encode(), url, {})
    found = detect_changes(DetectChanges((document,), b"", url, "feed", now_s))
    snapshot = Snapshot(
        Validators(f'W/"{number:032x}"', "Mon, 02 Nov 2026 08:15:00 GMT", f"{number:064x}"),
        found.baseline,
        found.title,
        found.link,
        found.polling_hints,
        updates=history_from_dates([each.published for each in found.latest if each.published], now_s),
        language=found.language,
        metadata=found.metadata,
        latest=found.latest,
    )
    channel = await store.channels.create(Channel(channel_id(url), url, created_s=now_s), snapshot, found.latest, now_s)
    (state,) = await store.channels.adopt([channel.id], NODES[0])
    assert state is not None
    description = await read_channel_name(store, state, now_s)
    await store.channels.set_content_name(channel.id, 1, description.pairs)
    await store.poll_rate_history.record([(channel.id, 0.0)])
    await store.poll_rate_history.record([(channel.id, 900.0)])
    await store.poll_rate_history.record([(channel.id, 300.123)])
    for poll in range(20):
        result = PollResult(NODES[poll % 3], now_s + 300.7 * poll, "unchanged", 304, "", 0.21 + poll / 100, 0)
        await store.channels.record_polls([(channel.id, PollReport(result, ""))])
    return channel.id


async def used_bytes(store: Store) -> int:
    """Return Redis's used memory without the clients' buffers."""
    memory: dict[str, Any] = await store.redis.call("INFO", "memory")
    return int(memory["used_memory"]) - int(memory["mem_clients_normal"])


def kind_of(key: str, cid: ChannelId) -> str:
    """Return a key of a channel without its id."""
    return key.replace(cid, "CID")


async def key_bytes(store: Store, cids: list[ChannelId]) -> dict[str, float]:
    """Return the mean MEMORY USAGE of each kind of key that these channels have."""
    total: Counter[str] = Counter()
    for cid in cids:
        found = [key.decode() for key in await store.redis.call("KEYS", f"cn:*{cid}*")]
        sizes = await store.redis.call_many([("MEMORY", "USAGE", key, "SAMPLES", 0) for key in found])
        for key, size in zip(found, sizes, strict=True):
            total[kind_of(key, cid)] += size
    return {kind: round(size / len(cids)) for kind, size in total.items()}


async def cost_us(store: Store, cids: list[ChannelId], rounds: int) -> dict[str, float]:
    """Return the processor time in µs for reading a state, of this process and of Redis."""

    async def redis_s() -> float:
        info = await store.redis.call("INFO", "commandstats")
        return (
            sum(float(each["usec"]) for name, each in info.items() if name in {"cmdstat_hmget", "cmdstat_eval"}) / 1e6
        )

    before, began = await redis_s(), time.process_time()
    for _ in range(rounds):
        for first in range(0, len(cids), BATCH):
            await store.channels.states(cids[first : first + BATCH])
    took, after = time.process_time() - began, await redis_s()
    reads = rounds * len(cids)
    return {"process": round(took / reads * 1e6, 2), "redis": round((after - before) / reads * 1e6, 2)}


async def measure_channels(store: Store, count: int) -> dict[str, object]:
    """Return the figures of ``count`` channels at rest."""
    await add_channels(store, 1_000_000, BATCH)
    empty = await used_bytes(store)
    cids: list[ChannelId] = []
    for first in range(0, count, BATCH):
        cids += await add_channels(store, first, min(BATCH, count - first))
    alone = await used_bytes(store)
    keys = await key_bytes(store, cids[:: max(1, count // 20)])
    fields = await store.redis.call("HGETALL", f"cn:{{c:{cids[0]}}}")
    for first in range(0, count, BATCH):
        await asyncio.gather(
            *(
                store.subscriptions.subscribe(f"person-{cid[:6]}-{number}@example.org", cid)
                for cid in cids[first : first + BATCH]
                for number in range(3)
            )
        )
    return {
        "channels": count,
        "bytes": round((alone - empty) / count),
        "subscriptions_bytes": round((await used_bytes(store) - alone) / count),
        "key_bytes": keys,
        "fields": {name.decode(): len(value) for name, value in fields.items()},
        "state_us": await cost_us(store, cids, max(1, 20_000 // count)),
    }


async def measure_week(store: Store, summary_chars: int, versions: int) -> dict[str, object]:
    """Return the figures of a channel that changed every minute, with a subscriber who is a day behind.

    ``bytes`` is MEMORY USAGE of the channel's hash, at its greatest. ``versions_kept`` is the number of versions that
    can be read at the end. ``missed`` is the number of entries that the subscriber did not get.
    """
    channel = await make_channel(store, f"https://news.example.org/{summary_chars}")
    jid = f"behind-{summary_chars}@example.org"
    uid = keys.user_id(jid)
    await store.subscriptions.subscribe(jid, channel.id)
    (state,) = await store.channels.adopt([channel.id], NODES[0])
    assert state is not None
    greatest = missed = text_bytes = 0
    busy_s = 0.0
    for delta in Ticker(channel.id, MINUTE_S, summary_chars, 1e9).deltas(versions):
        began_s = time.process_time()
        versioned = await store.channels.publish(delta, None, state.epoch, silent=False)
        busy_s += time.process_time() - began_s
        text_bytes += len(msgspec.msgpack.encode(versioned))
        await store.outbox.enqueue([uid], channel.id, versioned.version, delta.detected_s, hash_version(versioned))
        if versioned.version > DAY_VERSIONS and not versioned.version % READ_TOGETHER:
            batch = (await store.outbox.claim([uid], READ_TOGETHER, delta.detected_s))[uid]
            found = await asyncio.gather(*(load_versions(store.channels, item) for item in batch.items))
            missed += sum(each.missing_count for each in found)
            await store.outbox.complete(done=[(uid, batch.message_id)])
        if not versioned.version % READ_TOGETHER:
            size = await store.redis.call("MEMORY", "USAGE", keys.channel(channel.id), "SAMPLES", 0)
            greatest = max(greatest, size)
    return {
        "summary_chars": summary_chars,
        "versions": versions,
        "text_bytes_per_version": round(text_bytes / versions),
        "bytes": greatest,
        "versions_kept": len(await store.channels.versions(channel.id, versions + 1)),
        "missed": missed,
        "process_ms_per_version": round(busy_s / versions * 1e3, 2),
    }


async def main(channels: int, versions: int) -> None:
    """Run the benchmark and print its results."""
    with tempfile.TemporaryDirectory() as folder:
        async with PrivateRedis(Path(folder)) as redis, opened(Settings(redis_url=redis.url)) as store:
            found: dict[str, object] = {}
            if channels:
                found["channel"] = await measure_channels(store, channels)
            if versions:
                found["week"] = [await measure_week(store, chars, versions) for chars in (0, 120, 600)]
            print(json.dumps(found, indent=1))  # noqa: T201 - the result


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--channels", type=int, default=5_000, help="0: do not measure channels at rest")
    arguments.add_argument("--versions", type=int, default=7 * DAY_VERSIONS, help="0: do not measure a log")
    given = arguments.parse_args()
    asyncio.run(main(given.channels, given.versions))
