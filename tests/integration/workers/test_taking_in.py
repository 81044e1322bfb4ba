"""What pushes take of a worker: one of a channel at a time, with a slot and the parser held, or else one poll."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.clock import SystemClock
from service.corona.events import Event
from service.feeds.sandbox.parser_pool import ParserPool
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult
from service.feeds.urls import channel_id
from service.model import Channel, ChannelId, Entry
from service.store import Store
from service.store.channels.websub import Push
from tests.integration.workers.test_poller import US, Parser, fetcher, politeness
from tests.support.channels import SNAPSHOT
from tests.support.content_locators import stored
from tests.support.feed_documents import item, rss
from tests.support.raw_http import RawPublisher, answering, ok, raw_publisher
from tests.support.waiting import until_so
from workers.peers.content_cache import BaselineCache
from workers.polling.concurrency_limits import ConcurrencyLanes, ParserTimeBudgets, create_poll_lanes
from workers.polling.poll_state import PollState
from workers.polling.poller import Poller
from workers.polling.scheduler import PollScheduler
from workers.tasks import BackgroundTasks

NEWS = Push(rss([item("pushed")]), "text/xml")


class Worker:
    """A node's polling; what is found is only noted."""

    def __init__(self, store: Store, publisher: RawPublisher, polling: PollScheduler, lanes: ConcurrencyLanes) -> None:
        self.store = store
        self.publisher = publisher
        self.polling = polling
        self.lanes = lanes

    async def held(self, cid: ChannelId) -> PollState:
        watch = await self.polling._held(cid)
        assert watch is not None
        return watch

    async def pushed(self, path: str, *pushes: Push) -> str:
        """Return the id of a channel for which this was pushed; its publisher is on this machine."""
        url = self.publisher.url(path)
        channel = Channel(channel_id(url), url, created_s=1_000.0, private=True, listed=True)
        await self.store.channels.create(channel, SNAPSHOT, [Entry("first", "First", f"{url}/1")], 1_000.0)
        for push in pushes:
            await self.store.websub.queue_push(channel.id, push)
        return channel.id


@pytest_asyncio.fixture
async def worker(store: Store, parser: ParserPool) -> AsyncIterator[Worker]:
    async def nobody(_: Event) -> None:
        return

    async def no_hub(*_: object) -> None:
        return

    tasks, clock, feed = BackgroundTasks(), SystemClock(), answering(ok(b"feed"), then_close=False)
    lanes = create_poll_lanes(parser, Parser(), ParserTimeBudgets())
    async with raw_publisher(feed) as publisher, fetcher() as reach:
        poller = Poller(reach, politeness(store), lanes, BaselineCache(stored(store)), clock)
        polling = PollScheduler(US, store, poller, clock=clock, happened=nobody, hubs_named=no_hub, tasks=tasks)
        yield Worker(store, publisher, polling, lanes)
    await tasks.cancel()


class CountingParser(Parser):
    """Counts how many documents it reads at once, and the pushes that it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = self.read_so_far = 0

    async def detect_changes(self, request: DetectChanges, timeout_s: float = 10.0) -> DetectionResult:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        self.read_so_far += 1
        return await super().detect_changes(request, timeout_s)


@pytest.fixture
def parser() -> CountingParser:
    return CountingParser()


async def test_a_push_is_taken_only_with_the_parser_held(worker: Worker, store: Store, parser: CountingParser) -> None:
    cids = [await worker.pushed(f"/{number}", NEWS) for number in range(10)]
    lane = worker.lanes.choose_for_poll(await worker.held(cids[0]))
    async with lane.reading:
        taking = [asyncio.create_task(worker.polling.take_in(cid)) for cid in cids]
        await until_so(lambda: lane.reading._waiters, "a push waits for the parser")
        assert all([await store.websub.queued_bytes(cid) for cid in cids]), "none of them is in our memory"
    await asyncio.gather(*taking)
    assert (parser.read_so_far, parser.most) == (10, 1)


async def test_pushes_of_a_channel_are_taken_in_one_after_the_other(
    worker: Worker, store: Store, parser: CountingParser
) -> None:
    cid = await worker.pushed("/feed", NEWS)
    lane = worker.lanes.choose_for_poll(await worker.held(cid))
    async with lane.reading:
        first = asyncio.create_task(worker.polling.take_in(cid))
        await until_so(lambda: lane.reading._waiters, "the push waits for the parser")
        for _ in range(20):
            await worker.polling.take_in(cid)  # what is under way looks again
        assert len(lane.reading._waiters or ()) == 1
        await store.websub.queue_push(cid, Push(rss([item("later")]), "text/xml"))
    await first
    assert parser.read_so_far == 2
    assert await store.websub.take_pushes(cid) == []


async def test_pushes_that_find_no_room_in_time_become_one_poll(
    worker: Worker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.polling.poller._PUSHES_WAIT_S", 0.05)
    cid = await worker.pushed("/feed", NEWS, Push(b"x" * 1_000_000, "text/xml"))
    lane = worker.lanes.choose_for_document(await worker.held(cid), 10**6)
    async with lane.reading:
        await worker.polling.take_in(cid)
    assert len(worker.publisher.requests) == 1
    assert await store.websub.queued_bytes(cid) == 0
