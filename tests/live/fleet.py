"""The cost of a real fleet's control plane beside its forecast: ``python -m tests.live.fleet [--json]``.

Takes a quarter of an hour. Worker processes with many nodes each run on one Redis, over channels that never change and
are hardly ever polled. When the fleet has settled, the figures of ``coronet simulate fleet`` are measured, and compared
with the forecast for the same size and settings. Fails if one is not within a quarter of its forecast.

The maintenance interval is long, and polls are rare, so that two processors are not saturated. Messages are
counted by the workers' metrics, their bytes by the kernel's counters of connections between workers, Redis's by INFO.
Memory is that of the workers without their parser processes, as in the forecast.
``--tasks`` also prints Redis's commands by task, as MONITOR shows them: ``service/simulate/fleet/costs.py`` has them.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import numpy as np

from service.embedded.child_process import Child, Program, child_environment
from service.embedded.private_redis import PrivateRedis
from service.feeds.canonical_urls import channel_id
from service.model import Channel, Validators
from service.settings import Settings, load
from service.simulate.corona.workload import zipf_subscribers
from service.simulate.fleet.experiment import FleetForecast, FleetSetup, draw_histories, run
from service.simulate.report import without_garbage_collection
from service.store import Store, opened
from service.store.channels.channel_records import Snapshot
from tests.bench.bench_checks import run_publisher
from tests.bench.bench_idle import memory_mb
from tests.support.redis_monitor import tally_commands

POLL_INTERVAL_S = 100_000.0
TOLERANCE = 0.25
SEED = 1
_BATCH = 200
_READERS = 5_000
_SAMPLING_INTERVAL_S = 5.0
_JOINED_WITHIN_S = 180.0
_NODE_MESSAGES = re.compile(r'coronet_node_messages_total\{way="(\w+)"\} (\S+)')
_SOCKET_BYTES = re.compile(r"bytes_(?:sent|received):(\d+)")
COMPARED = (
    "messages_per_node_s",
    "bytes_per_node_s",
    "redis_commands_per_s",
    "redis_bytes_per_s",
    "memory_per_node_bytes",
)


class Size(msgspec.Struct, frozen=True):
    """The size of a live fleet, and how long it settles and is measured, in seconds."""

    nodes: int
    workers: int
    channels: int
    maintenance_s: float
    settle_s: float
    measure_s: float

    def settings(self, **further: str) -> Settings:
        """Return the settings of the fleet's workers: those of its size and load, and ``further`` ones by name."""
        return load(
            {},
            **further,
            allow_private=True,
            poll_interval_s=POLL_INTERVAL_S,
            longest_wait_s=10 * POLL_INTERVAL_S,
            maintenance_interval_s=self.maintenance_s,
            nodes_per_worker=self.nodes // self.workers,
            log_level="warning",
            cluster_secret="the secret of a test",
        )


async def add_channels(store: Store, origin: str, subscribers: Sequence[int]) -> None:
    """Add private channels with these numbers of subscribers, and update histories as in the simulation."""
    histories = draw_histories(len(subscribers), np.random.default_rng(SEED), time.time())
    for first in range(0, len(subscribers), _BATCH):
        numbers = range(first, min(len(subscribers), first + _BATCH))
        urls = {number: f"{origin}/feeds/{number}.xml" for number in numbers}
        created = (
            store.channels.create(
                Channel(channel_id(url), url, created_s=time.time(), private=True),
                Snapshot(Validators('"1"'), b"", url, origin, updates=histories[number]),
                (),
                time.time(),
            )
            for number, url in urls.items()
        )
        await asyncio.gather(*created)
        subscribed = (
            store.subscriptions.subscribe(f"reader{(7 * number + each) % _READERS}@localhost", channel_id(url))
            for number, url in urls.items()
            for each in range(subscribers[number])
        )
        await asyncio.gather(*subscribed)


@contextlib.asynccontextmanager
async def run_workers(size: Size, settings: Settings, folder: Path, store: Store) -> AsyncIterator[list[Child]]:
    """Run the worker processes; yield them when all nodes are on the ring."""
    changed = settings.model_dump(exclude_defaults=True, mode="json")
    environment = child_environment(os.environ, {f"CORONET_{key.upper()}": str(own) for key, own in changed.items()})
    argv = (sys.executable, "-P", "-m", "service.cli", "worker")

    async def is_complete() -> bool:
        return len(await store.ring.nodes()) == size.nodes

    async with contextlib.AsyncExitStack() as running:
        children = []
        for number in range(size.workers):
            log = folder / f"worker-{number}.log"
            child = await Child.start(Program("worker", argv, log, is_complete, environment))
            running.push_async_callback(child.stop)
            children.append(child)
        for child in children:
            await child.wait_until_ready(_JOINED_WITHIN_S)
        yield children


async def measured(size: Size, *, with_tasks: bool) -> dict[str, Any]:
    """Run a fleet of this size; return its figures."""
    with tempfile.TemporaryDirectory(prefix="coronet-") as name:
        folder = Path(name)
        async with run_publisher() as publisher, PrivateRedis(folder / "redis") as redis:
            settings = size.settings(redis_url=redis.url)
            async with opened(settings) as store:
                subscribers = zipf_subscribers(size.channels, np.random.default_rng(SEED), 1)
                await add_channels(store, publisher.origin, subscribers.tolist())
                _report("channels added")
                async with run_workers(size, settings, folder, store) as workers:
                    _report("workers joined")
                    await asyncio.sleep(size.settle_s)
                    _report("measuring")
                    polls, peer_bytes = await publisher.answered(), PeerBytes()
                    before = await read_counters(store, peer_bytes)
                    while time.monotonic() < before.at_s + size.measure_s:
                        await asyncio.sleep(_SAMPLING_INTERVAL_S)
                        await peer_bytes.sample()
                    after = await read_counters(store, peer_bytes)
                    polls = await publisher.answered() - polls
                    memory = sum(memory_mb(child.pid) for child in workers) * 2**20
                    tally = await tally_commands(redis.url, size.measure_s)
                sys.stderr.write("".join(log.read_text()[-1_000:] for log in folder.glob("worker-*.log")))
    took_s = after.at_s - before.at_s
    figures: dict[str, Any] = {
        "polls_per_s": polls / took_s,
        "messages_per_node_s": (after.messages - before.messages) / took_s / size.nodes,
        "bytes_per_node_s": (after.peer_bytes - before.peer_bytes) / took_s / size.nodes,
        "redis_commands_per_s": (after.redis_commands - before.redis_commands) / took_s,
        "redis_bytes_per_s": (after.redis_bytes - before.redis_bytes) / took_s,
        "memory_per_node_bytes": memory / size.nodes,
    }
    if with_tasks:
        figures["commands_per_s"] = {
            f"{task} {command}": count / size.measure_s for (task, command), count in sorted(tally.commands.items())
        }
        figures["request_bytes_per_s"] = {
            task: count / size.measure_s for task, count in sorted(tally.request_bytes.items())
        }
    return figures


class Counters(msgspec.Struct, frozen=True):
    """The counters of a running fleet at one time."""

    at_s: float
    redis_commands: int
    redis_bytes: int
    messages: float
    peer_bytes: int


class PeerBytes:
    """The bytes of the connections between workers, including those that were closed between two samples."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self._by_connection: dict[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self._by_connection.values())

    async def sample(self) -> None:
        ports = " or ".join(f"sport = :{urlsplit(url).port}" for url in self.urls)
        shown = await asyncio.create_subprocess_exec(
            "ss", "-tinHO", "state", "established", f"( {ports} )", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await shown.communicate()
        for line in output.decode().splitlines():
            _, _, local, remote, *_ = line.split()
            self._by_connection[f"{local} {remote}"] = sum(map(int, _SOCKET_BYTES.findall(line)))


async def read_counters(store: Store, peer_bytes: PeerBytes) -> Counters:
    """Read Redis's INFO, the workers' metrics, and the bytes of the connections between workers."""
    at_s, info = time.monotonic(), await store.redis.call("INFO", "stats")
    urls = sorted({node.metrics_url for node in await store.ring.nodes()})
    messages = 0.0
    async with aiohttp.ClientSession() as session:
        for url in urls:
            async with session.get(url) as answer:
                ways = _NODE_MESSAGES.findall(await answer.text())
            messages += sum(float(count) for way, count in ways if way != "process")
    peer_bytes.urls = urls
    await peer_bytes.sample()
    return Counters(
        at_s,
        int(info["total_commands_processed"]),
        int(info["total_net_input_bytes"]) + int(info["total_net_output_bytes"]),
        messages,
        peer_bytes.total,
    )


def forecast(size: Size) -> FleetForecast:
    """Return the forecast for a fleet of this size."""
    settings = size.settings()
    setup = FleetSetup(
        nodes=size.nodes,
        channels=size.channels,
        subscribers=1,
        private=True,
        churn=0.0,
        updates=False,
        policy=settings.policy(),
        lease_s=settings.lease_ttl_s,
        nodes_per_worker=settings.nodes_per_worker,
    )
    with without_garbage_collection():
        return run(setup, SEED, _report)


def _report(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.fleet", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--tasks", action="store_true", help="with --json: print Redis's commands by task as well")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--channels", type=int, default=20_000)
    parser.add_argument("--maintenance", type=float, default=30.0, help="maintenance interval in seconds")
    parser.add_argument("--settle", type=float, default=300.0, help="seconds before the measurement")
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds of the measurement")
    given = parser.parse_args()
    size = Size(given.nodes, given.workers, given.channels, given.maintenance, given.settle, given.seconds)
    live = asyncio.run(measured(size, with_tasks=given.tasks))
    expected = forecast(size)
    forecasts = {name: getattr(expected, name) for name in COMPARED}
    ratios = {name: live[name] / forecasts[name] for name in COMPARED}
    broken = [name for name, ratio in ratios.items() if abs(ratio - 1) > TOLERANCE]
    if given.json:
        found = {"live": live, "forecast": msgspec.to_builtins(expected), "ratios": ratios, "broken": broken}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        for name, ratio in ratios.items():
            sys.stdout.write(f"{name}: live {live[name]:,.1f}, forecast {forecasts[name]:,.1f}: {ratio:.2f}\n")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
