"""The comparison of documents with baselines: no entry is lost or sent twice when other nodes are faster."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from service.clock import SystemClock
from service.errors import ParseKilled
from service.feeds.canonical_urls import channel_id
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.parser_handlers import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.model import Channel, Delta, PollingHints, Validators
from service.net.fetcher import Fetcher
from service.store import Store
from service.store.channels.channel_records import Snapshot
from service.store.client import keys
from tests.integration.workers.test_poller import US, fetcher, politeness
from tests.support.baseline_lookups import store_only_lookup
from tests.support.channels import restate
from tests.support.feed_documents import item, rss
from tests.support.raw_http import ok, raw_publisher
from tests.support.waiting import until_so
from workers.polling.concurrency_limits import POLL_LIMITS, ConcurrencyLanes, ParserTimeBudgets
from workers.polling.poll_state import PollState, build_poll_state
from workers.polling.poller import Poller, PollOutcome

FAR_S = 4_000_000_000.0
RSS = "Content-Type: application/rss+xml"


class Parser(ParserClient):
    """Parses in this process, at most ``most`` documents at once; killed by a document that contains ``deadly``."""

    def __init__(self, most: int = 100) -> None:
        super().__init__()
        self._most = most

    async def detect_changes(self, request: DetectChanges, timeout_s: float = 10.0) -> DetectionResult:  # noqa: ARG002 - it needs none
        if len(request.documents) > self._most or b"deadly" in request.documents[0].body:
            raise ParseKilled("Too much.")
        return detect_changes(request)


class Publisher:
    """Responds with ``pages`` by path; never responds for other paths."""

    def __init__(self, **pages: bytes) -> None:
        self.pages = pages

    async def answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        body = self.pages.get(head.split()[1].strip("/"))
        if body is None:
            await asyncio.Event().wait()
        elif "If-None-Match" in head:
            writer.write(b"HTTP/1.1 304 Same\r\n\r\n")
        else:
            writer.write(ok(body, RSS))
        await writer.drain()


@pytest_asyncio.fixture
async def reach() -> AsyncIterator[Fetcher]:
    async with fetcher() as opened:
        yield opened


def poller(store: Store, reach: Fetcher, parser: ParserClient) -> Poller:
    lanes = ConcurrencyLanes(POLL_LIMITS, parser, parser, ParserTimeBudgets())
    return Poller(reach, politeness(store), lanes, store_only_lookup(store), SystemClock())


def feed(*names: str, more: str = "") -> bytes:
    return rss([item(name, published=None) for name in names]).replace(b"<description/>", more.encode())


def archive_link(url: str) -> str:
    return f'<link xmlns="http://www.w3.org/2005/Atom" rel="prev-archive" href="{url}"/>'


def baseline_of(*bodies: bytes, kind: Literal["feed", "page"] = "feed") -> bytes:
    url = "https://example.org/"
    documents = tuple(Document(body, url, {"content-type": "text/html"}) for body in bodies)
    return detect_changes(DetectChanges(documents, b"", url, kind, FAR_S)).baseline


async def create_channel(
    store: Store, url: str, *bodies: bytes, kind: Literal["feed", "page"] = "feed", created_s: float = 1.0
) -> PollState:
    """Create a channel whose baseline contains these documents; return the poll state of a node."""
    channel = Channel(channel_id(url), url, kind=kind, created_s=created_s, private=True)
    snapshot = Snapshot(Validators(), baseline_of(*bodies, kind=kind), "Example", "https://example.com/")
    await store.channels.create(channel, snapshot, (), created_s)
    return await load_state(store, channel)


async def load_state(store: Store, channel: Channel) -> PollState:
    (stored_state,) = await store.channels.states([channel.id])
    assert stored_state is not None
    return build_poll_state(stored_state, 1, SystemClock().wall_s())


async def publish_version(store: Store, state: PollState, *bodies: bytes) -> None:
    """Publish a version with these documents as another node."""
    (stored_state,) = await store.channels.adopt([state.channel.id], "b" * 40)
    assert stored_state is not None
    snapshot = Snapshot(Validators(), baseline_of(*bodies, kind=state.channel.kind), "", "")
    delta = Delta(state.channel.id, stored_state.channel.version, 0, 2.0, ())
    await store.channels.publish(delta, snapshot, stored_state.epoch, silent=True)


def changes_of(poll: PollOutcome) -> tuple[list[str], bool]:
    """Return the titles of the detected changes, and whether the update is silent."""
    assert poll.update is not None, poll.result.detail
    delta = poll.update.candidate.delta
    return [change.entry.title.removeprefix("Title ") for change in delta.changes], delta.initial


async def test_bytes_saved_by_located_baselines_are_counted(store: Store, reach: Fetcher) -> None:
    def saved_bytes() -> float:
        return REGISTRY.get_sample_value("coronet_publisher_saved_bytes_total") or 0.0

    body = feed("new", "a")
    async with raw_publisher(Publisher(feed=body, bare=body).answer) as publisher:
        url, before = publisher.url("/bare"), saved_bytes()
        bare = Channel(channel_id(url), url, created_s=1.0, private=True)
        await store.channels.create(bare, Snapshot(Validators(), b"", "Example", url), (), 1.0)
        polls = poller(store, reach, Parser())
        await polls.poll(await load_state(store, bare), US)
        assert saved_bytes() == before, "this one is fetched to be the base"
        state = await create_channel(store, publisher.url("/feed"), feed("a"))
        assert changes_of(await polls.poll(state, US)) == (["new"], False)
        assert saved_bytes() == before + len(body)
        await polls.poll(state, US)
        assert saved_bytes() == before + len(body), "now the base is here"


@pytest.mark.parametrize("archive", ["deadly", "not a feed", ""])
async def test_an_unreadable_archive_does_not_affect_the_document(
    store: Store, reach: Fetcher, monkeypatch: pytest.MonkeyPatch, archive: str
) -> None:
    monkeypatch.setattr("workers.polling.feed_archives._ARCHIVES_TIMEOUT_S", 0.5)
    server = Publisher(**({"old": archive.encode()} if archive else {}))
    async with raw_publisher(server.answer) as publisher:
        server.pages["feed"] = feed("new", more=archive_link(publisher.url("/old")))
        state = await create_channel(store, publisher.url("/feed"), feed("a", "b"))
        assert changes_of(await poller(store, reach, Parser()).poll(state, US)) == (["new"], False)


async def test_the_parser_is_free_while_an_archive_is_fetched(store: Store, reach: Fetcher) -> None:
    server = Publisher(other=feed("z", "y"))
    async with raw_publisher(server.answer) as publisher:
        server.pages["feed"] = feed("new", more=archive_link(publisher.url("/never")))
        polls = poller(store, reach, Parser())
        waiting = asyncio.create_task(polls.poll(await create_channel(store, publisher.url("/feed"), feed("a")), US))
        await until_so(lambda: any("/never" in head for head in publisher.requests), "the archive is asked for")
        other = await polls.poll(await create_channel(store, publisher.url("/other"), feed("y")), US)
        assert changes_of(other) == (["z"], False)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_entries_after_another_node_woke_the_channel_are_not_silent(store: Store, reach: Fetcher) -> None:
    server = Publisher(feed=feed("new", "b", "a"))
    async with raw_publisher(server.answer) as publisher:
        state = await create_channel(store, publisher.url("/feed"), feed("a"))
        await store.channels.mark_dormant(state.channel.id)
        state = await load_state(store, state.channel)
        await publish_version(store, state, feed("b", "a"))
        poll = await poller(store, reach, Parser()).poll(state, US)
        assert changes_of(poll) == (["new"], False)
        assert poll.update is not None
        assert poll.update.candidate.base_version == 2


async def test_concurrent_polls_offer_candidates_against_the_versions_they_compared_with(
    store: Store, reach: Fetcher
) -> None:
    """Otherwise entries of the later version would be sent again."""
    server = Publisher(feed=feed("new", "a"))
    async with raw_publisher(server.answer) as publisher:
        state = await create_channel(store, publisher.url("/feed"), feed("a"))
        polls = poller(store, reach, Parser())
        lane = polls._lanes.choose_for_poll(state)
        async with lane.reading:
            first = asyncio.create_task(polls.poll(state, US))
            await until_so(lambda: lane.reading._waiters, "the first waits for the parser")
            await publish_version(store, state, feed("new", "a"))
            await polls._contents.baseline(msgspec.structs.replace(state.channel, version=2), b"")
            second = asyncio.create_task(polls.poll(state, US))
            await until_so(lambda: len(lane.reading._waiters or ()) == 2, "both wait for the parser")
        update = (await first).update
        assert update is None or update.candidate.base_version == 1
        assert (await second).update is None


async def test_a_recreated_channel_does_not_use_the_former_baseline(store: Store, reach: Fetcher) -> None:
    server = Publisher(feed=feed("b", "a"))
    async with raw_publisher(server.answer) as publisher:
        polls = poller(store, reach, Parser())
        state = await create_channel(store, publisher.url("/feed"), feed("b", "a"))
        assert (await polls.poll(state, US)).update is None
        await store.remove_channel(state.channel.id)
        server.pages["feed"] = feed("d", "c", "b")
        again = await create_channel(store, publisher.url("/feed"), feed("c", "b"), created_s=2.0)
        assert changes_of(await polls.poll(again, US)) == (["d"], False)


async def test_documents_that_kill_the_parser_together_are_parsed_without_the_oldest(
    store: Store, reach: Fetcher
) -> None:
    server = Publisher(feed=feed("a"))
    async with raw_publisher(server.answer) as publisher:
        polls = poller(store, reach, Parser(most=2))
        state = await create_channel(store, publisher.url("/feed"), feed("a"))
        outcomes = []
        for number in range(5):
            server.pages["feed"] = feed(f"new {number}", "a")
            poll = await polls.poll(state, US)
            outcomes.append(poll.result.outcome)
        assert outcomes == ["new", "new", ParseKilled.code, "new", ParseKilled.code]


async def test_a_page_is_not_compared_again_with_an_older_document(store: Store, reach: Fetcher) -> None:
    old, ours, newer = (
        f"<p>Apples</p><p>Pears</p>{more}".encode() for more in ("", "<p>Figs</p>", "<p>Figs</p><p>Plums</p>")
    )
    server = Publisher(page=ours)
    async with raw_publisher(server.answer) as publisher:
        polls = poller(store, reach, Parser())
        state = await create_channel(store, publisher.url("/page"), old, old, kind="page")
        update = (await polls.poll(state, US)).update
        assert update is not None
        await publish_version(store, state, newer, newer)
        assert await polls.compare_again(await load_state(store, state.channel), update) is None


async def test_a_channel_that_wakes_up_unchanged_keeps_polling_hints_and_hubs(store: Store, reach: Fetcher) -> None:
    server = Publisher(feed=b"")
    async with raw_publisher(server.answer) as publisher:
        state = await create_channel(store, publisher.url("/feed"), feed("a"))
        cid = state.channel.id
        await restate(store, cid, etag='"1"', hints=PollingHints(ttl_s=60.0))
        await store.redis.call("HSET", keys.channel(cid), "dormant", "1")
        state = await load_state(store, state.channel)
        poll = await poller(store, reach, Parser()).poll(state, US)
        assert poll.update is not None
        assert (poll.update.candidate.polling_hints, poll.topic) == (PollingHints(ttl_s=60.0), "")
