"""CPU cost of a poll of an unchanged channel, Redis included, and a worker's memory per channel.

Run it alone on the machine: ``python -m tests.bench.bench_checks [--channels N] [--seconds S]``. One worker polls
channels of one publisher, first with responses 304, then with the same 33 KB each time. Prints JSON: CPU seconds per
1,000 polls of the worker with its children and of Redis, compared with a bare aiohttp client in the same run, and the
worker's memory per channel without its bounded caches. A worker's fixed cost of about 17 ms per second is included:
``--channels 300`` shows it for a less busy worker.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from service.embedded.private_redis import PrivateRedis
from service.feeds.canonical_urls import channel_id
from service.model import Channel, Validators
from service.settings import Settings
from service.store import Store, open_store
from service.store.channels.channel_records import Snapshot
from tests.bench.bench_idle import cpu_s, process_tree
from tests.support.waiting import until

_BARE_REQUESTS = 3_000
FULL_CACHES, MORE_CHANNELS = 10_000, 6_000
"""Number of channels that fills the bounded caches of URLs and bodies."""
UNKNOWN, KNOWN = Validators(), Validators('"1"', body_sha256="0" * 64)


class Publisher:
    """The plain publisher's process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.origin = f"http://127.0.0.1:{port}"

    async def answered(self) -> int:
        """Return the number of requests served."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return int(await self._process.stdout.readline())


@asynccontextmanager
async def run_publisher() -> AsyncIterator[Publisher]:
    """Run the plain publisher."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.plain_publisher"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield Publisher(process, int(await process.stdout.readline()))
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def run_worker(redis: PrivateRedis, poll_interval_s: float) -> AsyncIterator[int]:
    """Run one worker; yield its process id."""
    environment = {
        "CORONET_REDIS_URL": redis.url,
        "CORONET_ALLOW_PRIVATE": "true",
        "CORONET_POLL_INTERVAL_S": str(poll_interval_s),
        "CORONET_LOG_LEVEL": "warning",
    }
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.cli", "worker"), env={**os.environ, **environment}
    )
    try:
        yield worker.pid
    finally:
        worker.terminate()
        await worker.wait()


def own_memory_mb(pid: int) -> float:
    """Return a process's private memory in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


async def add_channels(store: Store, origin: str, path: str, count: int, known: Validators) -> None:
    """Add channels, listed by an admin."""
    for number in range(count):
        url = f"{origin}/{path}/{number}"
        channel = Channel(channel_id(url), url, created_s=time.time(), private=True, listed=True)
        await store.channels.create(channel, Snapshot(known, b"", "Plain", origin), (), time.time())


async def measure_polls(
    path: str, channels: int, poll_interval_s: float, for_s: float, *, rounds: int = 3, known: Validators = UNKNOWN
) -> dict[str, float]:
    """Return the cost of polls of channels under ``path``, after warm-up rounds.

    Where the content is ``known`` at the start, no memory of it is ever needed.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with run_publisher() as publisher, PrivateRedis(Path(folder) / "redis") as redis:
            store = open_store(Settings(redis_url=redis.url))
            try:
                await add_channels(store, publisher.origin, path, channels, known)
                async with run_worker(redis, poll_interval_s) as worker:

                    async def warmed_up() -> bool:
                        return await publisher.answered() >= rounds * channels

                    await until(warmed_up, "every channel polled", within_s=8 * poll_interval_s + 60)
                    before = await publisher.answered(), sum(map(cpu_s, process_tree(worker))), cpu_s(redis.pid)
                    await asyncio.sleep(for_s)
                    after = await publisher.answered(), sum(map(cpu_s, process_tree(worker))), cpu_s(redis.pid)
                    memory = own_memory_mb(worker)
            finally:
                await store.close()
    thousands = (after[0] - before[0]) / 1_000
    own, redis_s = (after[1] - before[1]) / thousands, (after[2] - before[2]) / thousands
    return {
        "checks_per_s": round(thousands * 1_000 / for_s, 1),
        "worker_cpu_s_per_1000": round(own, 3),
        "redis_cpu_s_per_1000": round(redis_s, 3),
        "cpu_s_per_1000": round(own + redis_s, 3),
        "worker_mb": round(memory, 1),
    }


async def measure_bare_poll(path: str) -> float:
    """Return the CPU seconds of 1,000 requests by a bare aiohttp client."""
    async with run_publisher() as publisher, aiohttp.ClientSession() as session:
        began_s = time.process_time()
        for number in range(_BARE_REQUESTS):
            headers = {"If-None-Match": '"1"'}
            async with session.get(f"{publisher.origin}/{path}/{number % 100}", headers=headers) as answer:
                await answer.read()
        return round((time.process_time() - began_s) * 1_000 / _BARE_REQUESTS, 3)


async def main(channels: int, poll_interval_s: float, for_s: float) -> None:
    """Run the benchmark and print its results."""
    found = {
        path: await measure_polls(path, channels, poll_interval_s, for_s)
        | {"bare_aiohttp_cpu_s_per_1000": await measure_bare_poll(path)}
        for path in ("304", "full")
    }
    few, many = [
        await measure_polls("304", count, 90.0, 1.0, rounds=2, known=KNOWN)
        for count in (FULL_CACHES, FULL_CACHES + MORE_CHANNELS)
    ]
    kb = (many["worker_mb"] - few["worker_mb"]) * 1024 / MORE_CHANNELS
    print(json.dumps({**found, "kb_per_channel": round(kb, 2)}, indent=1))  # noqa: T201 - the result


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--channels", type=int, default=1000)
    arguments.add_argument("--poll-interval", type=float, default=2.0)
    arguments.add_argument("--seconds", type=float, default=20.0)
    given = arguments.parse_args()
    asyncio.run(main(given.channels, given.poll_interval, given.seconds))
