"""A fleet of worker processes whose publishers have public addresses, and a console that shows what it does.

Workers and publishers are in a network namespace that contains all addresses, so that budgets, limits and sites count
as in production. The console, Redis and the test are outside. Each worker states its name in its User-Agent header, so
that the publisher's journal says which worker sent a request.
"""

import asyncio
import contextlib
import hashlib
import math
import os
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from service.embedded.ports import choose_ports
from service.feeds.canonical_urls import channel_id
from service.feeds.sandbox.parser_handlers import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, Document
from service.model import Channel, ChannelId, Validators
from service.settings import Settings
from service.store import Store, open_store
from service.store.channels.channel_records import Snapshot
from service.store.client import keys
from tests.support.netns import CORONET, Namespace, namespace
from tests.support.polling_audit import planned_gaps_s
from tests.support.public_publisher import PublicPublisher, document, entity_tag, public_publisher, worker_url
from tests.support.waiting import until

OBSERVER = "observer@localhost"
"""A user who is subscribed to every channel, and whose outbox records all fanned-out versions."""

_TOKEN = "an-api-token-for-tests"
_CONCURRENT = 16
_ATTEMPTS = 5
_SETTLED = 0.02
"""Relative change of a planned gap between polls up to which the plan counts as unchanged."""


class Feed(NamedTuple):
    """A feed and its number of subscribers, one of whom is the observer."""

    url: str
    subscribers: int = 1

    @property
    def id(self) -> ChannelId:
        """The channel's id."""
        return channel_id(self.url)


class PublicFleet:
    """The running fleet with its publisher and console."""

    def __init__(
        self, scratch: Path, place: Namespace, redis_url: str, environ: Mapping[str, str], store: Store
    ) -> None:
        self.store = store
        self._scratch = scratch
        self._place = place
        self._environ = {"CORONET_REDIS_URL": redis_url, **environ}
        self._programs = contextlib.ExitStack()
        self._api: aiohttp.ClientSession
        self.publisher: PublicPublisher
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        """The running workers by name."""
        self.console: subprocess.Popen[bytes]

    @contextlib.asynccontextmanager
    async def running(self, feeds: Sequence[Feed], workers: int, publisher: str) -> AsyncIterator["PublicFleet"]:
        """Run the program ``publisher`` with these feeds, the console and workers."""
        async with contextlib.AsyncExitStack() as running:
            running.push(self._programs)
            self.publisher = await running.enter_async_context(
                public_publisher(self._place, _addresses(feeds), self._scratch, publisher)
            )
            port = choose_ports(self._scratch / "ports.json", {"console": 0})["console"]
            headers = {"Authorization": f"Bearer {_TOKEN}"}
            self._api = await running.enter_async_context(
                aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers)
            )
            token = {"CORONET_CONSOLE_ADMIN_TOKEN": _TOKEN}
            self.console = self._start("console", [CORONET, "console"], CORONET_CONSOLE_PORT=port, **token)
            for number in range(workers):
                self.start_worker(f"w{number}")
            await until(lambda: self._has_joined(workers), f"all workers have joined; see {self._scratch}", within_s=90)
            await until(self._console_answers, "the console answers", within_s=60)
            yield self

    def _start(self, name: str, argv: Sequence[str | Path], **environ: object) -> "subprocess.Popen[bytes]":
        log = self._programs.enter_context((self._scratch / f"{name}.log").open("ab"))
        own = {variable: str(value) for variable, value in environ.items()}
        program = self._programs.enter_context(
            subprocess.Popen(
                argv, env={**os.environ, **self._environ, **own}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        )
        self._programs.callback(program.kill)
        return program

    def start_worker(self, name: str) -> None:
        """Start the worker ``name`` ("w" and a number), which listens at its own address."""
        url = worker_url(name)
        argv = self._place.command(CORONET, "worker")
        self.workers[name] = self._start(
            name, argv, CORONET_CONSOLE_PUBLIC_URL=url, CORONET_METRICS_BIND=_address_of(name)
        )

    def unreachable(self, *names: str) -> contextlib.AbstractContextManager[None]:
        """Make requests to these workers hang; they still reach Redis, publishers, and other workers."""
        return self._place.dropping(*map(_address_of, names))

    async def _has_joined(self, workers: int) -> bool:
        return len(await self.store.ring.nodes()) == workers

    async def _console_answers(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with self._api.get("/readyz") as answer:
                return answer.status < 500
        return False

    async def kill(self, name: str) -> float:
        """Kill a worker with SIGKILL; return the time (Unix s)."""
        worker = self.workers.pop(name)
        worker.kill()
        at_s = time.time()
        await asyncio.to_thread(worker.wait)
        return at_s

    async def add(self, feeds: Sequence[Feed]) -> None:
        """Create channels with their present content, and subscribe their readers and the observer."""
        limit = asyncio.Semaphore(_CONCURRENT)

        async def add(feed: Feed) -> None:
            async with limit:
                await self.create(feed)
                for number in range(feed.subscribers - 1):
                    await self.store.subscriptions.subscribe(_reader(number), feed.id)
                await self.store.subscriptions.subscribe(OBSERVER, feed.id)
                await self.store.worker_requests.announce_channel(feed.id)

        await asyncio.gather(*map(add, feeds))

    async def create(self, feed: Feed) -> None:
        """Create a channel with its present content; it is listed, so that it is not dormant without subscribers."""
        split, now_s = urlsplit(feed.url), time.time()
        body = document(split.netloc, split.path, [])
        found = detect_changes(DetectChanges((Document(body, feed.url, {}),), b"", feed.url, "feed", now_s))
        validators = Validators(entity_tag(body), body_sha256=hashlib.sha256(body).hexdigest())
        snapshot = Snapshot(validators, found.baseline, found.title, "", found.polling_hints)
        channel = Channel(feed.id, feed.url, created_s=now_s, listed=True)
        await self.store.channels.create(channel, snapshot, tuple(reversed(found.latest)), now_s)

    async def get(self, path: str) -> Any:
        """Return the decoded response of the console's API to a GET request."""
        async with self._api.get(f"/api/v1{path}") as answer:
            assert answer.ok, f"{path}: {answer.status} {await answer.text()}"
            return msgspec.json.decode(await answer.read())

    async def channels(self, feeds: Sequence[Feed]) -> dict[str, dict[str, Any]]:
        """Return the responses of the console's API about these channels, by URL.

        If the owner of a channel does not explain its polling in time, the request is repeated, up to ``_ATTEMPTS``
        requests in total.
        """
        limit = asyncio.Semaphore(_CONCURRENT)

        async def detail(feed: Feed) -> dict[str, Any]:
            async with limit:
                for _ in range(_ATTEMPTS):
                    found: dict[str, Any] = await self.get(f"/channels/{feed.id}")
                    if found["why"]:
                        break
                return found

        details = await asyncio.gather(*map(detail, feeds))
        return {feed.url: detail for feed, detail in zip(feeds, details, strict=True)}

    async def settled(
        self, feeds: Sequence[Feed], *, every_s: float, within_s: float = 60.0
    ) -> dict[str, dict[str, Any]]:
        """Wait, at most ``within_s``, until the planned polls of these channels are unchanged for ``every_s``.

        Return the responses of the console's API about these channels, by URL.
        """
        deadline_s, before_s = time.monotonic() + within_s, dict[str, float]()
        while True:
            details = await self.channels(feeds)
            gaps_s = planned_gaps_s(details)
            is_settled = all(
                math.isclose(gap_s, before_s.get(url, math.nan), rel_tol=_SETTLED) for url, gap_s in gaps_s.items()
            )
            if is_settled or time.monotonic() > deadline_s:
                return details
            before_s = gaps_s
            await asyncio.sleep(every_s)

    async def set_policy(self, **aims: object) -> float:
        """Set these fields of the fleet policy through the console's API; return the time (Unix s)."""
        async with self._api.put("/api/v1/policy", json={"aims": aims}) as answer:
            assert answer.ok, await answer.text()
        return time.time()

    async def node_names(self) -> dict[str, str]:
        """Return the name of each living node's worker, by node id."""
        by_pid = {str(process.pid): name for name, process in self.workers.items()}
        nodes = (await self.get("/nodes"))["items"]
        return {node["id"]: by_pid.get(node["name"].rpartition(":")[2], "") for node in nodes}

    async def told(self, feeds: Sequence[Feed], person: str = OBSERVER) -> list[str]:
        """Return the titles of the entries in a user's outbox in order; an entry queued twice is there twice."""
        return self._titles(await self._outbox(person), await self._versions(feeds))

    async def audit(self, published: Mapping[Feed, Sequence[str]]) -> list[str]:
        """Return a sentence for each subscriber whose outbox lacks, repeats or reorders entries of a feed.

        ``published`` has the titles of each feed's entries, in order.
        """
        versions = await self._versions(list(published))
        feed_of = {title: feed for feed, titles in published.items() for title in titles}
        broken = []
        for person in (OBSERVER, *map(_reader, range(max(feed.subscribers for feed in published) - 1))):
            told: dict[Feed, list[str]] = {feed: [] for feed in published if _is_subscribed(person, feed)}
            for title in self._titles(await self._outbox(person), versions):
                if title in feed_of:
                    told[feed_of[title]].append(title)
            broken += [
                f"{person} was told {titles} of {feed.url}, which published {list(published[feed])}"
                for feed, titles in told.items()
                if titles != list(published[feed])
            ]
        return broken

    async def _versions(self, feeds: Sequence[Feed]) -> dict[tuple[str, int], list[str]]:
        """Return the titles of the new entries of each version of these feeds."""
        found = await asyncio.gather(*(self.store.channels.versions(feed.id, 10_000) for feed in feeds))
        return {
            (feed.id, delta.version): [change.entry.title for change in delta.changes if change.kind == "addition"]
            for feed, deltas in zip(feeds, found, strict=True)
            for delta in deltas
        }

    async def _outbox(self, person: str) -> list[tuple[str, int]]:
        """Return the channel and the version of each item in a person's outbox, in order."""
        items = await self.store.redis.call("XRANGE", keys.outbox(keys.user_id(person)), "-", "+")
        return [(fields[b"c"].decode(), int(fields[b"v"])) for _, fields in items]

    def _titles(
        self, outbox: Sequence[tuple[str, int]], versions: Mapping[tuple[str, int], Sequence[str]]
    ) -> list[str]:
        return [title for item in outbox for title in versions.get(item, ())]


@contextlib.asynccontextmanager
async def public_fleet(
    scratch: Path,
    redis_url: str,
    feeds: Sequence[Feed],
    publisher: str = public_publisher.__module__,
    /,
    *,
    workers: int,
    **environ: object,
) -> AsyncIterator[PublicFleet]:
    """Run a fleet without channels on this Redis; ``environ`` are the settings of all programs.

    ``publisher`` is the module of the program that serves the feeds.
    """
    with namespace(scratch) as place:
        store = open_store(Settings(redis_url=redis_url))
        try:
            chosen = {name: str(value) for name, value in environ.items()}
            async with PublicFleet(scratch, place, redis_url, chosen, store).running(
                feeds, workers, publisher
            ) as fleet:
                yield fleet
        finally:
            await store.close()


def _reader(number: int) -> str:
    return f"reader{number}@localhost"


def _is_subscribed(person: str, feed: Feed) -> bool:
    return person in (OBSERVER, *map(_reader, range(feed.subscribers - 1)))


def _address_of(worker: str) -> str:
    return f"10.77.0.{10 + int(worker.removeprefix('w'))}"


def _addresses(feeds: Sequence[Feed]) -> dict[str, str]:
    """Return an address for each host; the hosts of one domain share one, and each domain has a network of its own."""
    domains: dict[str, str] = {}
    found = {}
    for feed in feeds:
        host = urlsplit(feed.url).netloc
        domain = ".".join(host.split(".")[-2:])
        number = len(domains)
        found[host] = domains.setdefault(domain, f"93.{100 + number // 250}.{number % 250}.10")
    return found
