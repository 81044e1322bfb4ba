"""Content exchange of sixteen workers in four groups: ``python -m tests.live.peers``.

Workers are processes on one Redis. The round-trip time is a millisecond within a group, and 100 or 200 ms between
groups (by delaying proxies). The bytes of feeds differ in every poll, so that a worker that begins to poll a feed needs
its base content. Twelve workers start; then one more joins each group; then one begins to corrupt contents, and a last
one joins its group. For comparison, the same is done with workers that fetch every base from its publisher. Prints
JSON: the sources of base contents, the publishers' requests for them, and whether targets are reached.

If a worker finds a content while another one of its group receives it, it counts as present in the group.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.test_utils import unused_port

from service.corona.fleet_policy import DEFAULT_POLICY
from service.embedded import ports
from service.embedded.private_redis import PrivateRedis
from service.errors import NoWorker
from service.settings import Settings
from service.store import Store, open_store
from tests.live.peer_worker import WHY, Event, WorkerPlan
from tests.support.tcp_proxy import proxy
from tests.support.waiting import until

PLACES, FIRST, JOINING = 4, 12, 4
NEAR_ONE_WAY_S = 0.0005
FAR_ONE_WAY_S = (0.05, 0.1)
"""By how far apart two of the four places are on their circle."""
FEEDS = 24
POLL_INTERVAL_S = 16.0
SETTINGS = {
    "CORONET_ALLOW_PRIVATE": "1",
    "CORONET_POLL_INTERVAL_S": str(POLL_INTERVAL_S),
    "CORONET_MAINTENANCE_INTERVAL_S": "6",
    "CORONET_LEASE_TTL_S": "8",
    "CORONET_GOAL": "lite",
    "CORONET_DEMAND_FACTOR": str((FIRST + JOINING) / DEFAULT_POLICY.most_polls_per_node),
    "CORONET_NEAR_RTT_S": "0.06",
}


class Publisher:
    """Feeds that get entries on command, and whose bytes differ in every response."""

    def __init__(self) -> None:
        self.requests = 0
        self.for_bases = 0
        self._entries = [1] * FEEDS

    def publish(self, feed: int) -> None:
        self._entries[feed] += 1

    async def answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        self.for_bases += WHY in request.headers
        feed = int(request.match_info["feed"])
        items = "".join(
            f"<item><guid>{feed}-{number}</guid><title>Entry {number}</title><description>{'news ' * 60}</description>"
            f"<link>http://127.0.0.1/{feed}/{number}</link></item>"
            for number in range(self._entries[feed], max(self._entries[feed] - 40, 0), -1)
        )
        body = f'<rss version="2.0"><channel><title>Feed {feed}</title>{items}</channel></rss><!-- {self.requests} -->'
        return web.Response(text=body, content_type="application/rss+xml")


class Worker:
    """One worker process."""

    def __init__(self, number: int, directory: Path, port: int) -> None:
        self.place = number % PLACES
        self.port = port
        self.journal = directory / f"{number}.jsonl"
        self.told = directory / f"{number}.json"
        self.log = directory / f"{number}.log"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, redis_url: str, proxies: dict[int, int], *, fetches: bool) -> None:
        self.told.write_bytes(msgspec.json.encode(WorkerPlan(proxies, str(self.journal), fetches)))
        environ = {**os.environ, **SETTINGS, "CORONET_REDIS_URL": redis_url, "CORONET_METRICS_PORT": str(self.port)}
        environ["CORONET_CLUSTER_SECRET"] = "" if fetches else "sixteen workers"
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.live.peer_worker", str(self.told)), env=environ, stdout=log, stderr=log
            )

    def tell(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), 5)
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()

    @property
    def events(self) -> list[Event]:
        lines = self.journal.read_bytes().splitlines() if self.journal.exists() else []
        return [msgspec.json.decode(line, type=Event) for line in lines]

    async def counted(self) -> dict[str, float]:
        """Return the worker's counters."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}/metrics") as answer,
        ):
            lines = (await answer.text()).splitlines()
        values = (line.rsplit(" ", 1) for line in lines if line.startswith("coronet_") and "_created" not in line)
        return {name: float(value) for name, value in values}


class Fleet:
    """All workers, and the links between them."""

    def __init__(
        self, store: Store, redis_url: str, directory: Path, stack: contextlib.AsyncExitStack, *, fetches: bool
    ) -> None:
        self._fetches = fetches
        self._store = store
        self._redis_url = redis_url
        numbers = range(FIRST + JOINING + 1)
        chosen = ports.choose_ports(directory / "ports.json", {str(number): 0 for number in numbers})
        self.workers = [Worker(number, directory, chosen[str(number)]) for number in numbers]
        self.workers[-1].place = 0
        self._stack = stack
        self._proxies: list[dict[int, int]] = [{} for _ in range(PLACES)]

    async def lay_links(self) -> None:
        """Start the proxies by which every group reaches every worker."""
        for place, proxies in enumerate(self._proxies):
            for worker in self.workers:
                link = proxy("127.0.0.1", worker.port, one_way_s(place, worker.place))
                proxies[worker.port] = (await self._stack.enter_async_context(link)).port

    async def start(self, workers: Sequence[Worker]) -> None:
        """Start these workers, and wait until they are in the ring."""
        present = len(await self._store.ring.nodes())
        for worker in workers:
            self._stack.push_async_callback(worker.stop)
            await worker.start(self._redis_url, self._proxies[worker.place], fetches=self._fetches)

        async def joined() -> bool:
            return len(await self._store.ring.nodes()) == present + len(workers)

        await until(joined, "all are in the ring", within_s=60)


def one_way_s(one: int, other: int) -> float:
    """Return the one-way delay between two groups in seconds."""
    apart = min(abs(one - other), PLACES - abs(one - other))
    return FAR_ONE_WAY_S[apart - 1] if apart else NEAR_ONE_WAY_S


async def subscribe(store: Store, url: str) -> None:
    """Subscribe a user to a feed, so that it is polled."""
    probed = None
    while probed is None or probed.channel is None:
        with contextlib.suppress(NoWorker):  # sixteen workers start on few processors
            probed = await store.worker_requests.probe(url)
    await store.channels.set_listed(probed.channel.id, listed=True)
    await store.worker_requests.announce_channel(probed.channel.id)


async def publish_periodically(publisher: Publisher, every_s: float) -> None:
    """Publish entries, one feed after the other."""
    number = 0
    while True:
        await asyncio.sleep(every_s)
        publisher.publish(number * 7 % FEEDS)
        number += 1


class Report:
    """Statistics from the journals of workers."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.events = {worker.port: worker.events for worker in workers}
        self._place = {
            event.worker: worker.place for worker in workers for event in self.events[worker.port] if event.kind == "is"
        }
        self._had: dict[tuple[int, str], list[tuple[int, float, float]]] = {}
        for worker in workers:
            since_s: dict[str, float] = {}
            for event in self.events[worker.port]:
                if event.kind == "has":
                    since_s[event.digest] = event.at_s
                elif event.kind == "lacks" and event.digest in since_s:
                    self._note(worker, event.digest, since_s.pop(event.digest), event.at_s)
            for digest, at_s in since_s.items():
                self._note(worker, digest, at_s, float("inf"))

    def _note(self, worker: Worker, digest: str, from_s: float, to_s: float) -> None:
        self._had.setdefault((worker.place, digest), []).append((worker.port, from_s, to_s))

    def near_had(self, worker: Worker, event: Event) -> bool:
        """Return whether another worker of the group had the content during the lookup."""
        return any(
            port != worker.port and from_s <= event.at_s and event.at_s + event.took_s <= to_s
            for port, from_s, to_s in self._had.get((worker.place, event.digest), ())
        )

    def of(self, workers: Sequence[Worker]) -> dict[str, Any]:
        """Return how these workers found their base contents."""
        found = [(worker, event) for worker in workers for event in self.events[worker.port] if event.kind == "located"]
        had = [(worker, event) for worker, event in found if self.near_had(worker, event)]
        own = sum(self._place.get(event.worker, -1) == worker.place for worker, event in had)
        sources = Counter(f"hop {event.hops}" if event.source == "near" else event.source for _, event in found)
        took_ms = sorted(1000 * event.took_s for _, event in found) or [0.0]
        return {
            "bases_needed": len(found),
            "found_at": dict(sorted(sources.items())),
            "somebody_of_the_place_had_it": len(had),
            "and_it_came_from_the_place": own,
            "share_from_the_place": round(own / len(had), 3) if had else None,
            "from_publishers": sources["publisher"],
            "took_ms": {f"p{part}": round(took_ms[len(took_ms) * part // 100], 1) for part in (50, 86, 95)},
        }

    def failures(self) -> dict[str, Any]:
        """Return the time that the search at neighbours adds to the request to the owner, for missing contents."""
        found = [event for events in self.events.values() for event in events if event.kind == "failed"]
        ratios = sorted(event.took_s / event.owner_s for event in found if event.owner_s)
        return {
            "lookups": len(ratios),
            "cost_over_asking_the_owner": {
                f"p{part}": round(ratios[len(ratios) * part // 100], 3) for part in (50, 86, 95, 99)
            },
        }


@contextlib.asynccontextmanager
async def run_publisher() -> AsyncIterator[tuple[Publisher, str]]:
    """Yield a publisher and its URL."""
    publisher, app = Publisher(), web.Application()
    app.add_routes([web.get("/{feed}.xml", publisher.answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = unused_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield publisher, f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def run_fleet(seconds: float, directory: Path, *, fetches: bool) -> AsyncIterator[tuple[Fleet, Publisher]]:
    """Yield a polling fleet, to which one worker of each group joined last, and its publisher."""
    async with contextlib.AsyncExitStack() as stack:
        redis = await stack.enter_async_context(PrivateRedis(directory / "redis"))
        store = open_store(Settings(redis_url=redis.url))
        stack.push_async_callback(store.close)
        publisher, url = await stack.enter_async_context(run_publisher())
        fleet = Fleet(store, redis.url, directory, stack, fetches=fetches)
        await fleet.lay_links()
        await fleet.start(fleet.workers[:FIRST])
        for feed in range(FEEDS):
            await subscribe(store, f"{url}/{feed}.xml")
        news = asyncio.create_task(publish_periodically(publisher, 2.0))
        stack.callback(news.cancel)
        await asyncio.sleep(seconds)
        await fleet.start(fleet.workers[FIRST:-1])
        await asyncio.sleep(seconds)
        yield fleet, publisher


def count_requests(fleet: Fleet, publisher: Publisher) -> dict[str, int]:
    """Return the number of base contents needed so far, and of those fetched from the publisher."""
    needed = sum(event.kind == "located" for worker in fleet.workers for event in worker.events)
    return {"bases_needed": needed, "requests_for_bases": publisher.for_bases, "requests": publisher.requests}


async def run_all(seconds: float, directory: Path) -> dict[str, Any]:
    """Run all phases; return the report."""
    apart = directory / "fetching"
    apart.mkdir(exist_ok=True)
    async with run_fleet(seconds, apart, fetches=True) as (fleet, publisher):
        fetching = count_requests(fleet, publisher)
    async with run_fleet(seconds, directory, fetches=False) as (fleet, publisher):
        found = count_requests(fleet, publisher)
        fewer = 1 - found["requests_for_bases"] / fetching["requests_for_bases"]
        first, joining, last = fleet.workers[:FIRST], fleet.workers[FIRST:-1], fleet.workers[-1]
        for worker in (*first, *joining):
            worker.tell(signal.SIGUSR1)

        async def looked_up() -> bool:
            return all(worker.events[-1:] and any(e.kind == "done" for e in worker.events) for worker in first)

        await until(looked_up, "all have looked for what nobody has", within_s=60)
        liar = first[0]
        liar.tell(signal.SIGUSR2)
        await fleet.start([last])
        await asyncio.sleep(seconds / 2)
        counts = [await worker.counted() for worker in fleet.workers]
        account = Report(fleet.workers)
        return {
            "first_twelve": account.of(first),
            "four_that_joined": account.of(joining),
            "all": account.of(fleet.workers),
            "failed_lookups": account.failures(),
            "one_that_joined_beside_a_liar": account.of([last]),
            **sum_counts(counts),
            "publisher": {"fetching": fetching, "as_it_is": found, "fewer_requests_for_bases": round(fewer, 4)},
        }


_NEIGHBOURS = ('coronet_neighbours{kind="near"}', 'coronet_neighbours{kind="far"}')


def sum_counts(counts: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return the sums of the workers' counters."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    refusals = {name.split('"')[1]: int(n) for name, n in total.items() if "peer_refusals_total" in name and n}
    failures = {name.split('"')[1]: int(n) for name, n in total.items() if "location_failures_total" in name and n}
    return {
        "refused": refusals,
        "local_failures": failures,
        "publisher_bytes_saved": int(total["coronet_publisher_saved_bytes_total"]),
        "filter_bits": [8 * int(each.get("coronet_filter_width_bytes", 0)) for each in counts],
        "neighbours": ["+".join(f"{each.get(name, 0):.0f}" for name in _NEIGHBOURS) for each in counts],
    }


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--keep", type=Path, help="where to leave logs and journals")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        directory = given.keep or Path(made)
        directory.mkdir(exist_ok=True)
        print(json.dumps(asyncio.run(run_all(given.seconds, directory)), indent=2))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
