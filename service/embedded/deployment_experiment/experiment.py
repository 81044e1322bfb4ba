"""One run of the deployment experiment: starts all processes, measures, and stops the processes."""

import asyncio
import contextlib
import hashlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec

from service.embedded.child_process import Child, Program, child_environment
from service.embedded.deployment_experiment.publication_plan import (
    COMPRESSION,
    HOSTS,
    SITES,
    DeploymentResult,
    PublicationPlan,
    PublicationTimes,
    VersionTimes,
    channel_url,
    detection_delays,
    draw_publication_times,
    paper_delay_statistics,
    recovery_s,
)
from service.embedded.deployment_experiment.publisher import current_document, entity_tag
from service.embedded.private_redis import PrivateRedis
from service.errors import OperationalError
from service.feeds.canonical_urls import channel_id
from service.feeds.sandbox.parser_handlers import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, Document
from service.model import Channel, ChannelId, Validators
from service.settings import Settings
from service.store import Store, opened
from service.store.channels.channel_records import Snapshot
from service.store.client import keys

POLL_INTERVAL_S = 60.0
"""The poll interval in real seconds. It stands for Corona's poll interval of 30 minutes, because time is compressed."""
_MAINTENANCE_S = 20.0
_START_S = 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Report = Callable[[str], None]

OBSERVER = "observer@localhost"
"""The user who is subscribed to every channel. The outbox of this user, a Redis stream, contains the time at which each
version (set of new or changed entries) of a channel was queued."""

_CONCURRENT_CHANNELS = 64
_USER_COUNT = 1_500
_DEMAND_FACTOR = 0.995
"""Budget of the fleet as a share of the requests that all subscribers would send if each polled on its own.

The polls of a run are up to 0.3 % more than the budget, and the load must not exceed 5,000 polls per minute.
"""


class DeploymentSetup(msgspec.Struct, frozen=True):
    """The size of a deployment, and the settings of its measurement. Durations are in real seconds.

    - ``settle_s``: the duration of the run before the measurement begins.
    - ``measure_s``: the duration of the measurement.
    - ``kill``: whether to kill one worker process halfway through the measurement.
    - ``public``: whether channels have host names that count as public, so that the default request limits apply.
      Otherwise, channels have loopback addresses, which are exempt from the limits.
    """

    channels: int = 7_500
    nodes: int = 60
    workers: int = 4
    settle_s: float = 120.0
    measure_s: float = 150.0
    kill: bool = False
    public: bool = False
    seed: int = 1


STEPS = 6


async def deploy(setup: DeploymentSetup, report: Report) -> DeploymentResult:
    """Run the deployment experiment once, and return its results.

    ``report`` is called with the name of each step when the step begins. There are ``STEPS`` steps.

    Raises :class:`OperationalError` if a process does not start.
    """
    with tempfile.TemporaryDirectory(prefix="coronet-") as folder:
        plan = PublicationPlan(
            setup.seed, setup.channels, time.time(), _START_S + 2 * (setup.settle_s + setup.measure_s)
        )
        async with (
            _Publisher(plan) as publisher,
            PrivateRedis(Path(folder) / "redis") as redis,
            opened(Settings(redis_url=redis.url)) as store,
        ):
            report("workers")
            # Workers start before channels exist: otherwise every joining node would redistribute all channels.
            async with _workers(setup, redis.url, Path(folder), store) as workers:
                report("channels")
                updates = draw_publication_times(plan)
                channels = await _add_channels(store, publisher.port, updates, public=setup.public)
                report("settling")
                await asyncio.sleep(setup.settle_s)
                report("measuring")
                before_s, cpu_s = time.time(), sum(map(_cpu_s, workers))
                served = await publisher.served_during(setup.measure_s / 2)
                killed_s = time.time()
                if setup.kill:
                    cpu_s -= _cpu_s(workers[0])
                    os.kill(workers[0].pid, signal.SIGKILL)
                served += await publisher.served_during(setup.measure_s / 2)
                after_s, polls = time.time(), served[-1][1] - served[0][1]
                cores = (sum(map(_cpu_s, workers)) - cpu_s) / (after_s - before_s)
                report("waiting for the last entries")
                await asyncio.sleep(POLL_INTERVAL_S)
            versioned = await _read_version_times(store, channels)
        # Entries published up to ``after_s`` have had a whole poll interval to be detected.
        delays_s, weights, missed = detection_delays(updates, versioned, before_s, after_s)
        mean_s, p95_s = paper_delay_statistics(delays_s, weights)
        report("done")
        return DeploymentResult(
            nodes=setup.nodes,
            channels=setup.channels,
            subscriptions=sum(updates.subscribers),
            workers=setup.workers,
            public=setup.public,
            killed_worker=setup.kill,
            measured_s=after_s - before_s,
            updates=len(delays_s) + missed,
            missed=missed,
            mean_detection_s=mean_s,
            p95_detection_s=p95_s,
            legacy_detection_s=POLL_INTERVAL_S / 2 * COMPRESSION,
            polls_per_min=polls / (after_s - before_s) * 60 / COMPRESSION,
            worker_cores=cores,
            recovered_after_s=recovery_s(served, killed_s) if setup.kill else None,
        )


class _Publisher:
    """The child process that serves the feeds of all channels."""

    def __init__(self, plan: PublicationPlan) -> None:
        self._plan = plan

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "service.embedded.deployment_experiment.publisher"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.port = await self._request(msgspec.json.encode(self._plan))
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def served(self) -> int:
        """Return the number of requests that the process has served so far."""
        return await self._request(b"")

    async def served_during(self, for_s: float) -> list[tuple[float, int]]:
        """Return tuples (Unix time, number of requests served so far), one per second for ``for_s`` seconds.

        The first tuple is recorded at the start of this period, and the last at its end.
        """
        end_s, samples = time.time() + for_s, list[tuple[float, int]]()
        while True:
            samples.append((time.time(), await self.served()))
            if (left_s := end_s - time.time()) <= 0:
                return samples
            await asyncio.sleep(min(1.0, left_s))

    async def _request(self, line: bytes) -> int:
        if self._process.stdin is None or self._process.stdout is None:
            raise OperationalError("The publisher's process is not running.")
        self._process.stdin.write(line + b"\n")
        response = await self._process.stdout.readline()
        if not response:
            raise OperationalError("The publisher's process exited.")
        return int(response)


@asynccontextmanager
async def _workers(setup: DeploymentSetup, redis_url: str, folder: Path, store: Store) -> AsyncIterator[list[Child]]:
    """Run the worker processes while the context lasts; yield them once all nodes have joined the fleet.

    The processes write their log files to the directory ``folder``.
    """
    overrides = {
        "CORONET_REDIS_URL": redis_url,
        "CORONET_ALLOW_PRIVATE": "true",
        "CORONET_POLL_INTERVAL_S": str(POLL_INTERVAL_S),
        "CORONET_GOAL": "lite",
        "CORONET_MAINTENANCE_INTERVAL_S": str(_MAINTENANCE_S),
        "CORONET_NODES_PER_WORKER": str(setup.nodes // setup.workers),
        "CORONET_LOG_LEVEL": "warning",
    }
    argv: tuple[str, ...] = (sys.executable, "-P", "-m", "service.cli", "worker")
    if setup.public:
        overrides |= _shipped_limits()
        argv = (*_hosts_file_prefix(folder), *argv)
    else:
        overrides["CORONET_DEMAND_FACTOR"] = str(_DEMAND_FACTOR)
    node_count = setup.nodes // setup.workers * setup.workers

    async def is_complete() -> bool:
        return len(await store.ring.nodes()) == node_count

    children: list[Child] = []
    try:
        for number in range(setup.workers):
            log = folder / f"worker-{number}.log"
            children.append(
                await Child.start(Program("worker", argv, log, is_complete, child_environment(os.environ, overrides)))
            )
        for child in children:
            await child.wait_until_ready(_START_S)
        yield children
    finally:
        await asyncio.gather(*(child.stop() for child in children))


def _shipped_limits() -> dict[str, str]:
    """Return the default limits on the rates of requests and polls, as environment variables for the workers.

    The experiment is accelerated: one real second stands for ``COMPRESSION`` seconds. The limits are therefore
    multiplied by ``COMPRESSION``.
    """
    settings = Settings()
    per_hour = ("max_polls_per_hour", "polls_per_hour_for_one_subscriber")
    per_s = ("host_requests_per_s", "address_requests_per_s")
    return {f"CORONET_{name.upper()}": str(getattr(settings, name) * COMPRESSION) for name in (*per_hour, *per_s)}


def _hosts_file_prefix(folder: Path) -> tuple[str, ...]:
    """Return a command-line prefix that makes a program read another file instead of /etc/hosts.

    The other file is written to ``folder``. It maps the host names of public channels to loopback addresses.
    """
    # The file replaces /etc/hosts only for this command, which runs in its own mount namespace (Linux).
    hosts = folder / "hosts"
    lines = ("127.0.0.1 localhost", *(f"{address} {name}" for name, address in SITES.items()))
    hosts.write_text("\n".join(lines), encoding="ascii")
    return ("unshare", "-rm", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts))


def _cpu_s(child: Child) -> float:
    """Return the CPU time that a child process has used, in seconds; 0 if it has exited."""
    try:
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def _read_version_times(store: Store, channels: Sequence[ChannelId]) -> VersionTimes:
    """Return the Unix time at which each entry was queued for delivery to its subscribers.

    The keys of the result are tuples (index of the channel, title of the entry). A channel's index is its position in
    ``channels``, which contains the ids of the channels. Entries that were never queued are left out.
    """
    # An entry is queued with the version that introduced it. The times are read from the outbox of the user OBSERVER,
    # who is subscribed to all channels.
    number_of = {cid.encode(): number for number, cid in enumerate(channels)}
    queued = await store.redis.call("XRANGE", keys.outbox(keys.user_id(OBSERVER)), "-", "+")
    queued_s = {(fields[b"c"], int(fields[b"v"])): float(fields[b"t"]) for _, fields in queued}
    versioned: dict[tuple[int, str], float] = {}
    for state in await store.channels.get_many(channels):
        for delta in await store.channels.deltas(state.id, 1, state.version) if state is not None else ():
            cid = delta.channel.encode()
            if (at_s := queued_s.get((cid, delta.version))) is not None:
                versioned |= {(number_of[cid], change.entry.title): at_s for change in delta.changes}
    return versioned


async def _add_channels(store: Store, port: int, updates: PublicationTimes, *, public: bool) -> list[ChannelId]:
    """Create the experiment's channels and subscribe users to them; return the ids of the channels.

    The ids are in the same order as in ``updates``. Entries that a feed already contains at the time of this call are
    stored as known entries, so that they are not detected as new. The user ``OBSERVER`` is subscribed to every
    channel.

    - ``port``: the port of the publisher.
    - ``updates``: the publication times and the number of subscribers of each channel.
    - ``public``: whether the URLs have public host names (:func:`channel_url`).
    """
    channels: list[ChannelId] = []
    users = _assign_users(updates.subscribers)
    for first in range(0, len(users), _CONCURRENT_CHANNELS):
        numbers = range(first, min(first + _CONCURRENT_CHANNELS, len(users)))
        added = (
            _add_channel(store, channel_url(number, port, public=public), updates, number, users[number])
            for number in numbers
        )
        channels += await asyncio.gather(*added)
    return channels


def _assign_users(subscribers: Sequence[int]) -> list[list[str]]:
    user_count, indexes = max(_USER_COUNT, *subscribers), count()
    return [
        [OBSERVER, *(f"person{next(indexes) % user_count}@localhost" for _ in range(size - 1))] for size in subscribers
    ]


async def _add_channel(store: Store, at: str, updates: PublicationTimes, number: int, jids: Sequence[str]) -> ChannelId:
    now_s = time.time()
    entry_count, body = current_document(updates, number, now_s)
    findings = detect_changes(DetectChanges((Document(body, at, {}),), b"", at, "feed", now_s))
    validators = Validators(entity_tag(entry_count), body_sha256=hashlib.sha256(body).hexdigest())
    channel = Channel(channel_id(at), at, created_s=now_s, private=urlsplit(at).hostname in HOSTS)
    latest = tuple(reversed(findings.latest))
    await store.channels.create(channel, Snapshot(validators, findings.baseline, findings.title, ""), latest, now_s)
    await asyncio.gather(*(store.subscriptions.subscribe(jid, channel.id) for jid in jids))
    return channel.id
