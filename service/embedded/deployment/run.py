"""A deployment from its start to its figures: everything it runs is ended with it."""

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

import msgspec

from service.embedded.deployment.publisher import etag_of, shown
from service.embedded.deployment.updates import (
    COMPRESSION,
    Deployment,
    Plan,
    Updates,
    Versioned,
    detection,
    in_paper_seconds,
    updates_of,
    url,
)
from service.embedded.redis import PrivateRedis
from service.embedded.supervisor import Child, Program, child_environment
from service.errors import OperationalError
from service.feeds.entries.change_detection import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, Document
from service.feeds.urls import channel_id
from service.model import Channel, ChannelId, Delta, UserId, Validators
from service.settings import Settings
from service.store import Store, opened
from service.store.channels.channels import Snapshot
from service.store.client import keys
from service.store.client.connection import script_command
from service.store.subscriptions.subscriptions import encode_timestamp

POLL_INTERVAL_S = 60.0
"""The paper's 30 minutes, compressed."""
_MAINTENANCE_S = 20.0
_START_S = 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Report = Callable[[str], None]

OBSERVER = "observer@localhost"
"""Subscribes to every channel: its outbox tells when each version was on its way to people."""

_AT_ONCE = 64
_PEOPLE = 1_500


class Setup(msgspec.Struct, frozen=True):
    """How large a deployment is, and how long it is watched before and while it is measured (s of the clock)."""

    channels: int = 7_500
    nodes: int = 60
    workers: int = 4
    settle_s: float = 120.0
    measure_s: float = 150.0
    kill: bool = False
    seed: int = 1


STEPS = 6


async def deploy(setup: Setup, report: Report) -> Deployment:
    """Run a deployment and return its figures. Raises :class:`OperationalError` if a part of it does not start."""
    with tempfile.TemporaryDirectory(prefix="coronet-") as folder:
        plan = Plan(setup.seed, setup.channels, time.time(), _START_S + 2 * (setup.settle_s + setup.measure_s))
        async with (
            _Publisher(plan) as publisher,
            PrivateRedis(Path(folder) / "redis") as redis,
            opened(Settings(redis_url=redis.url)) as store,
        ):
            report("workers")
            # They come first: sixty nodes that join one after the other would share out everything sixty times.
            async with _workers(setup, redis.url, Path(folder), store) as workers:
                report("channels")
                updates = updates_of(plan)
                channels = await _add_channels(store, publisher.port, updates)
                report("settling")
                await asyncio.sleep(setup.settle_s)
                report("measuring")
                before_s, answered, cpu_s = time.time(), await publisher.answered(), sum(map(_cpu_s, workers))
                await asyncio.sleep(setup.measure_s / 2)
                if setup.kill:
                    cpu_s -= _cpu_s(workers[0])
                    os.kill(workers[0].pid, signal.SIGKILL)
                await asyncio.sleep(setup.measure_s / 2)
                after_s, asked = time.time(), await publisher.answered() - answered
                cores = (sum(map(_cpu_s, workers)) - cpu_s) / (after_s - before_s)
                report("waiting for the last entries")
                await asyncio.sleep(POLL_INTERVAL_S)
            versioned = await _versioned(store, channels)
        # Only what was published at least half an interval before the end had the time to be told.
        delays_s, weights, missed = detection(updates, versioned, before_s, after_s)
        mean_s, p95_s = in_paper_seconds(delays_s, weights)
        report("done")
        return Deployment(
            nodes=setup.nodes,
            channels=setup.channels,
            subscriptions=sum(updates.subscribers),
            workers=setup.workers,
            killed_worker=setup.kill,
            measured_s=after_s - before_s,
            updates=len(delays_s) + missed,
            missed=missed,
            mean_detection_s=mean_s,
            p95_detection_s=p95_s,
            legacy_detection_s=POLL_INTERVAL_S / 2 * COMPRESSION,
            polls_per_min=asked / (after_s - before_s) * 60 / COMPRESSION,
            worker_cores=cores,
        )


class _Publisher:
    """The origin's process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "service.embedded.deployment.publisher"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.port = await self._say(msgspec.json.encode(self._plan))
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def answered(self) -> int:
        """Return how many requests it has answered."""
        return await self._say(b"")

    async def _say(self, line: bytes) -> int:
        if self._process.stdin is None or self._process.stdout is None:
            raise OperationalError("The publisher has no pipes.")
        self._process.stdin.write(line + b"\n")
        answer = await self._process.stdout.readline()
        if not answer:
            raise OperationalError("The publisher has ended.")
        return int(answer)


@asynccontextmanager
async def _workers(setup: Setup, redis_url: str, folder: Path, store: Store) -> AsyncIterator[list[Child]]:
    """Run the worker processes, with the nodes shared out among them, until all nodes are in the ring."""
    told = {
        "CORONET_REDIS_URL": redis_url,
        "CORONET_ALLOW_PRIVATE": "true",
        "CORONET_POLL_INTERVAL_S": str(POLL_INTERVAL_S),
        "CORONET_MAINTENANCE_INTERVAL_S": str(_MAINTENANCE_S),
        "CORONET_NODES_PER_WORKER": str(setup.nodes // setup.workers),
        "CORONET_LOG_LEVEL": "warning",
    }
    argv = (sys.executable, "-P", "-m", "service.cli", "worker")
    wanted = setup.nodes // setup.workers * setup.workers

    async def all_there() -> bool:
        return len(await store.ring.view()) == wanted

    children: list[Child] = []
    try:
        for number in range(setup.workers):
            log = folder / f"worker-{number}.log"
            children.append(
                await Child.start(Program("worker", argv, log, all_there, child_environment(os.environ, told)))
            )
        for child in children:
            await child.wait_until_ready(_START_S)
        yield children
    finally:
        await asyncio.gather(*(child.stop() for child in children))


def _cpu_s(child: Child) -> float:
    """Return the processor seconds that a child has used itself; nothing if it has ended."""
    try:
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def _versioned(store: Store, channels: Sequence[ChannelId]) -> Versioned:
    """Return when each entry was on its way to the observer."""
    number_of = {cid.encode(): number for number, cid in enumerate(channels)}
    queued = await store.redis.call("XRANGE", keys.outbox(keys.user_id(OBSERVER)), "-", "+")
    told_s = {(fields[b"c"], int(fields[b"v"])): float(fields[b"t"]) for _, fields in queued}
    logs = await store.redis.many([("XRANGE", keys.log(cid), "-", "+") for cid in channels])
    versioned: dict[tuple[int, str], float] = {}
    for log in logs:
        for _, fields in log:
            delta = msgspec.msgpack.decode(fields[b"d"], type=Delta)
            at_s = told_s.get((delta.channel.encode(), delta.version))
            for change in delta.changes:
                if at_s is not None:
                    versioned[number_of[delta.channel.encode()], change.entry.title] = at_s
    return versioned


async def _add_channels(store: Store, port: int, updates: Updates) -> list[ChannelId]:
    """Create the channels, as a look at what they show now would have, with their subscribers; return ids, in order.

    Each has the observer among its subscribers.
    """
    made: list[ChannelId] = []
    people = _people(updates.subscribers)
    for first in range(0, len(updates.subscribers), _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, len(updates.subscribers)))
        some = await asyncio.gather(*(_add(store, port, updates, number) for number in numbers))
        pairs = [
            (jid, keys.user_id(jid), cid) for number, cid in zip(numbers, some, strict=True) for jid in people[number]
        ]
        await _subscribe(store, pairs)
        made += some
    return made


def _people(subscribers: Sequence[int]) -> list[list[str]]:
    count_of, places = max(_PEOPLE, *subscribers), count()
    return [
        [OBSERVER, *(f"person{next(places) % count_of}@localhost" for _ in range(wanted - 1))] for wanted in subscribers
    ]


async def _add(store: Store, port: int, updates: Updates, number: int) -> ChannelId:
    at, now_s = url(number, port), time.time()
    shows, body = shown(updates, number, now_s)
    findings = detect_changes(DetectChanges((Document(body, at, {}),), b"", at, "feed", now_s))
    known = Validators(etag_of(shows), body_sha256=hashlib.sha256(body).hexdigest())
    channel = Channel(channel_id(at), at, created_s=now_s, private=True)
    latest = tuple(reversed(findings.latest))
    await store.channels.create(channel, Snapshot(known, findings.baseline, findings.title, ""), latest, now_s)
    return channel.id


async def _subscribe(store: Store, some: Sequence[tuple[str, UserId, ChannelId]]) -> None:
    link, since = store.redis, encode_timestamp(time.time())
    own = [(keys.user(uid), keys.user_index(uid), keys.intents(uid), keys.restrictions(uid)) for _, uid, _ in some]
    subscribing = zip(own, some, strict=True)
    written = await link.many(
        [script_command("user_subscribe", held, jid, cid, 1, since, 0, "") for held, (jid, _, cid) in subscribing]
    )
    seqs = [record.split()[1].decode() for _, record, _ in written]
    added = zip(some, seqs, strict=True)
    await asyncio.gather(*(store.channel_index.add(cid, uid, int(seq)) for (_, uid, cid), seq in added))
    await link.many(
        [
            script_command("user_settle", (keys.intents(uid),), cid, f"add {seq}")
            for (_, uid, cid), seq in zip(some, seqs, strict=True)
        ]
    )
    await link.call("SADD", keys.USERS, *{uid for _, uid, _ in some})
