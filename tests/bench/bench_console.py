"""Cost of the console with a large number of channels: response times, memory, and open live pages.

Run it alone on the machine: ``python -m tests.bench.bench_console [--channels N]``. Prints JSON: seconds until the
first page, p50 and p95 in milliseconds by kind of page, resident memory, and the share of a core that open overview
pages use.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import msgspec

from service.embedded.private_redis import PrivateRedis
from service.feeds.canonical_urls import channel_id
from service.settings import Settings
from service.store import Store, open_store
from service.store.channels.channel_records import StoredSnapshot
from service.store.client import keys
from tests.bench.bench_idle import cpu_s
from tests.support.console import Visitor, logged_in
from tests.support.processes import resident_bytes
from tests.support.waiting import until

WORDS = ("Astronomy", "Baker", "Cities", "Data", "Forest", "Garden", "History", "Ideas", "Journal", "Kernel", "Music")
WATCHERS, WATCHED_S = 50, 30.0
SUBSCRIPTIONS, AT_ONCE = 5_000, 250
WHAT_IF = "goal=fair&longest_wait_s=1+h&demand_factor=1&delay_s=60&budget_polls_per_minute="


async def fill(store: Store, channels: int) -> None:
    """Write channels of every kind, and some subscriptions, to Redis."""
    draw, ids = random.Random(7), list[str]()  # noqa: S311 - the same each time
    for start in range(0, channels, 1_000):
        commands: list[tuple[str | bytes | float | int, ...]] = []
        for number in range(start, min(channels, start + 1_000)):
            url = f"https://{draw.choice(WORDS).lower()}{draw.randrange(300)}.example/feeds/{number}.xml"
            cid = channel_id(url)
            ids.append(cid)
            title = f"{draw.choice(WORDS)} and {draw.choice(WORDS)} {number}"
            failing = ("failing_since", draw.random() * 1e9) if draw.random() < 0.05 else ()
            stated = msgspec.msgpack.encode(StoredSnapshot(title, created_s=1e9 + number))
            fields = ("url", url, "snapshot", stated, "version", draw.randrange(900))
            commands += [
                ("SADD", keys.channel_registry(cid[:2]), cid),
                ("HSET", keys.channel(cid), *fields, "listed", "1", *failing),
            ]
        await store.redis.call_many(commands)
    for start in range(0, SUBSCRIPTIONS, AT_ONCE):
        chosen = [(f"{n}@example.org", ids[int(len(ids) * draw.random() ** 3)]) for n in range(start, start + AT_ONCE)]
        await asyncio.gather(*(store.subscriptions.subscribe(jid, cid) for jid, cid in chosen))


@asynccontextmanager
async def run_console(redis_url: str) -> AsyncIterator[tuple[str, int]]:
    """Run a console; its URL and process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told = {"CORONET_REDIS_URL": redis_url, "CORONET_CONSOLE_PORT": str(port), "CORONET_LOG_LEVEL": "warning"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.cli", "console"), env={**os.environ, **told}, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        await process.wait()


async def timed_ms(somebody: Visitor, paths: Sequence[str]) -> dict[str, float]:
    """Request pages in sequence; return p50 and p95 of the response time."""
    took_ms = []
    for path in paths:
        began_s = time.perf_counter()
        status, _ = await somebody.get(path)
        took_ms.append((time.perf_counter() - began_s) * 1000)
        assert status == 200, path
    ordered = quantiles(took_ms, n=20)
    return {"p50_ms": round(ordered[9], 1), "p95_ms": round(ordered[18], 1)}


async def watched_share(somebody: Visitor, pid: int) -> float:
    """Return the share of a core that open overview pages use."""

    async def watch() -> None:
        async with somebody.http.get("/live") as stream:
            async for _ in stream.content:
                pass

    watchers = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
    await asyncio.sleep(5)
    before_s = cpu_s(pid)
    await asyncio.sleep(WATCHED_S)
    share = (cpu_s(pid) - before_s) / WATCHED_S
    for watcher in watchers:
        watcher.cancel()
    await asyncio.wait(watchers)
    return share


async def measure(channels: int) -> dict[str, object]:
    """Return the figures."""
    with tempfile.TemporaryDirectory() as directory:
        async with PrivateRedis(Path(directory)) as redis:
            store = open_store(Settings(redis_url=redis.url))
            await fill(store, channels)
            async with run_console(redis.url) as (url, pid), logged_in(url, store) as ada:
                figures = await _pages(ada, channels)
                figures["resident_mb"] = round(resident_bytes(pid) / 1e6, 1)
                figures["core_share_of_50_overviews"] = round(await watched_share(ada, pid), 4)
                figures["resident_mb_in_the_end"] = round(resident_bytes(pid) / 1e6, 1)
            await store.close()
    return figures


async def _pages(ada: Visitor, channels: int) -> dict[str, object]:
    async def serves() -> bool:
        try:
            return (await ada.get("/livez"))[0] == 200
        except OSError:
            return False

    await until(serves, "the console serves")
    began_s = time.perf_counter()

    async def complete() -> bool:
        return f"{channels:,} channels" in (await ada.get("/channels"))[1]

    await until(complete, "all channels are listed", within_s=120)
    figures: dict[str, object] = {"channels": channels, "first_whole_list_s": round(time.perf_counter() - began_s, 1)}
    draw = random.Random(3)  # noqa: S311 - the same each time
    sorts = ("title", "-title", "subscribers", "news", "failing", "added", "version", "site")
    last = channels // 50
    kinds = {
        "list": [f"/channels?page={draw.randrange(1, last)}" for _ in range(60)],
        "sort": [f"/channels?sort={sort}&page={draw.randrange(1, last)}" for sort in sorts for _ in range(8)],
        "search": [f"/channels?q={draw.choice(WORDS)}+and+{draw.choice(WORDS)}" for _ in range(60)],
        "state": [f"/channels?state=failing&sort={draw.choice(sorts)}" for _ in range(30)],
        "overview": ["/"] * 40,
        "hosts": ["/hosts"] * 20,
        "what_if": [f"/policy?{WHAT_IF}"] * 20,
    }
    for kind, paths in kinds.items():
        figures[kind] = await timed_ms(ada, paths)
    return figures


def main() -> None:
    """Run the benchmark and print its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, default=100_000)
    print(json.dumps(asyncio.run(measure(parser.parse_args().channels)), indent=2))  # noqa: T201 - for people


if __name__ == "__main__":
    main()
