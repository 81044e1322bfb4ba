"""Processing of pushed documents: one at a time per channel, with a slot and the parser held, else one poll."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.asyncio_tasks import BackgroundTasks
from service.clock import SystemClock
from service.corona.events import Event
from service.feeds.canonical_urls import channel_id
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult
from service.model import Channel, ChannelId, Entry
from service.store import Store
from service.store.channels.websub_store import Push
from tests.integration.workers.test_poller import US, Parser, fetcher, politeness
from tests.support.baseline_lookups import store_only_lookup
from tests.support.channels import SNAPSHOT
from tests.support.feed_documents import item, rss
from tests.support.raw_http import RawPublisher, answering, ok, raw_publisher
from tests.support.waiting import until_so
from workers.polling.concurrency_limits import POLL_LIMITS, ConcurrencyLanes, ParserTimeBudgets
from workers.polling.poll_scheduler import PollScheduler
from workers.polling.poll_state import PollState
from workers.polling.poller import Poller

NEWS = Push(rss([item("pushed")]), "text/xml")


class Worker:
    """The poll scheduler of a node, whose detected updates are dropped."""

    def __init__(self, store: Store, publisher: RawPublisher, polling: PollScheduler, lanes: ConcurrencyLanes) -> None:
        self.store = store
        self.publisher = publisher
        self.polling = polling
        self.lanes = lanes

    async def state(self, cid: ChannelId) -> PollState:
        state = await self.polling._get_state(cid)
        assert state is not None
        return state

    async def pushed(self, path: str, *pushes: Push) -> str:
        """Create a channel of the local publisher with these pushes; return its id."""
        url = self.publisher.url(path)
        channel = Channel(channel_id(url), url, created_s=1_000.0, private=True, listed=True)
        await self.store.channels.create(channel, SNAPSHOT, [Entry("first", "First", f"{url}/1")], 1_000.0)
        for push in pushes:
            await self.store.websub.queue_push(channel.id, push)
        return channel.id


@pytest_asyncio.fixture
async def worker(store: Store, parser: ParserClient) -> AsyncIterator[Worker]:
    async def nobody(*_: Event) -> None:
        return

    def no_hub(*_: object) -> None:
        return

    tasks, clock, feed = BackgroundTasks(), SystemClock(), answering(ok(b"feed"), then_close=False)
    lanes = ConcurrencyLanes(POLL_LIMITS, parser, Parser(), ParserTimeBudgets())
    async with raw_publisher(feed) as publisher, fetcher() as reach:
        poller = Poller(reach, politeness(store), lanes, store_only_lookup(store), clock)
        polling = PollScheduler(US, store, poller, clock=clock, on_events=nobody, on_hubs_found=no_hub, tasks=tasks)
        yield Worker(store, publisher, polling, lanes)
    await tasks.cancel()


class CountingParser(Parser):
    """Counts concurrent and completed parses."""

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


async def test_a_push_is_loaded_only_after_the_parser_is_acquired(
    worker: Worker, store: Store, parser: CountingParser
) -> None:
    cids = [await worker.pushed(f"/{number}", NEWS) for number in range(10)]
    lane = worker.lanes.choose_for_poll(await worker.state(cids[0]))
    async with lane.reading:
        taking = [asyncio.create_task(worker.polling.pushes.process(cid)) for cid in cids]
        await until_so(lambda: lane.reading._waiters, "a push waits for the parser")
        assert all([await store.websub.queued_bytes(cid) for cid in cids]), "no push has been loaded"
    await asyncio.gather(*taking)
    assert (parser.read_so_far, parser.most) == (10, 1)


async def test_pushes_of_a_channel_are_processed_in_sequence(
    worker: Worker, store: Store, parser: CountingParser
) -> None:
    cid = await worker.pushed("/feed", NEWS)
    lane = worker.lanes.choose_for_poll(await worker.state(cid))
    async with lane.reading:
        first = asyncio.create_task(worker.polling.pushes.process(cid))
        await until_so(lambda: lane.reading._waiters, "the push waits for the parser")
        for _ in range(20):
            await worker.polling.pushes.process(cid)  # the call under way repeats
        assert len(lane.reading._waiters or ()) == 1
        await store.websub.queue_push(cid, Push(rss([item("later")]), "text/xml"))
    await first
    assert parser.read_so_far == 2
    assert await store.websub.take_pushes(cid) == []


async def test_pushes_without_a_slot_in_time_become_one_poll(
    worker: Worker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.polling.websub_pushes._SLOT_TIMEOUT_S", 0.05)
    cid = await worker.pushed("/feed", NEWS, Push(b"x" * 1_000_000, "text/xml"))
    lane = worker.lanes.choose_for_document(await worker.state(cid), 10**6)
    async with lane.reading:
        await worker.polling.pushes.process(cid)
    assert len(worker.publisher.requests) == 1
    assert await store.websub.queued_bytes(cid) == 0
