"""What polls compare documents with, and that nothing is lost or told twice when others are faster."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from service.clock import SystemClock
from service.errors import ParseKilled
from service.feeds.entries.change_detection import detect_changes
from service.feeds.sandbox.parser_pool import ParserPool
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.feeds.urls import channel_id
from service.model import Channel, Delta, PollingHints, Validators
from service.net.fetcher import Fetcher
from service.store import Store
from service.store.channels.channels import Snapshot
from service.store.client import keys
from tests.integration.workers.test_poller import US, fetcher, politeness
from tests.support.content_locators import stored
from tests.support.feed_documents import item, rss
from tests.support.raw_http import ok, raw_publisher
from tests.support.waiting import until_so
from workers.peers.content_cache import BaselineCache
from workers.polling.concurrency_limits import ParserTimeBudgets, create_poll_lanes
from workers.polling.poll_state import PollState, watch
from workers.polling.poller import Poller, PollOutcome

FAR_S = 4_000_000_000.0
RSS = "Content-Type: application/rss+xml"


class Parser(ParserPool):
    """Reads in this process, at most so many documents at once, and dies of what is ``deadly``."""

    def __init__(self, most: int = 100) -> None:
        super().__init__(1)
        self._most = most

    async def detect_changes(self, request: DetectChanges, timeout_s: float = 10.0) -> DetectionResult:  # noqa: ARG002 - it needs none
        if len(request.documents) > self._most or b"deadly" in request.documents[0].body:
            raise ParseKilled("Too much.")
        return detect_changes(request)


class Publisher:
    """Answers with ``pages`` by path; a missing one never comes."""

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


def poller(store: Store, reach: Fetcher, parser: ParserPool) -> Poller:
    lanes = create_poll_lanes(parser, parser, ParserTimeBudgets())
    return Poller(reach, politeness(store), lanes, BaselineCache(stored(store)), SystemClock())


def listing(*names: str, more: str = "") -> bytes:
    return rss([item(name, published=None) for name in names]).replace(b"<description/>", more.encode())


def archived(url: str) -> str:
    return f'<link xmlns="http://www.w3.org/2005/Atom" rel="prev-archive" href="{url}"/>'


def memory_of(*bodies: bytes, kind: Literal["feed", "page"] = "feed") -> bytes:
    url = "https://example.org/"
    documents = tuple(Document(body, url, {"content-type": "text/html"}) for body in bodies)
    return detect_changes(DetectChanges(documents, b"", url, kind, FAR_S)).baseline


async def made(
    store: Store, url: str, *bodies: bytes, kind: Literal["feed", "page"] = "feed", created_s: float = 1.0
) -> PollState:
    """A channel that knows these documents, as a node holds it that polls it."""
    channel = Channel(channel_id(url), url, kind=kind, created_s=created_s, private=True)
    snapshot = Snapshot(Validators(), memory_of(*bodies, kind=kind), "Example", "https://example.com/")
    await store.channels.create(channel, snapshot, (), created_s)
    return await loaded(store, channel)


async def loaded(store: Store, channel: Channel) -> PollState:
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    return watch(state, 1, SystemClock().wall_s())


async def versioned(store: Store, held: PollState, *bodies: bytes) -> None:
    """Another node versions what these documents say."""
    (state,) = await store.channels.adopt([held.channel.id], "b" * 40)
    assert state is not None
    snapshot = Snapshot(Validators(), memory_of(*bodies, kind=held.channel.kind), "", "")
    delta = Delta(held.channel.id, state.channel.version, 0, 2.0, ())
    await store.channels.publish(delta, snapshot, state.epoch, silent=True)


def told(poll: PollOutcome) -> tuple[list[str], bool]:
    """Return the titles of what was found, and whether it is to be taken in silently."""
    assert poll.found is not None, poll.result.detail
    delta = poll.found.candidate.delta
    return [change.entry.title.removeprefix("Title ") for change in delta.changes], delta.initial


async def test_what_publishers_are_spared_is_counted(store: Store, reach: Fetcher) -> None:
    def saved_bytes() -> float:
        return REGISTRY.get_sample_value("coronet_publisher_bytes_saved_total") or 0.0

    body = listing("new", "a")
    async with raw_publisher(Publisher(feed=body, bare=body).answer) as publisher:
        url, before = publisher.url("/bare"), saved_bytes()
        bare = Channel(channel_id(url), url, created_s=1.0, private=True)
        await store.channels.create(bare, Snapshot(Validators(), b"", "Example", url), (), 1.0)
        polls = poller(store, reach, Parser())
        await polls.poll(await loaded(store, bare), US)
        assert saved_bytes() == before, "this one is fetched to be the base"
        held = await made(store, publisher.url("/feed"), listing("a"))
        assert told(await polls.poll(held, US)) == (["new"], False)
        assert saved_bytes() == before + len(body)
        await polls.poll(held, US)
        assert saved_bytes() == before + len(body), "now the base is here"


@pytest.mark.parametrize("archive", ["deadly", "not a feed", ""])
async def test_an_archive_that_cannot_be_read_spoils_nothing(
    store: Store, reach: Fetcher, monkeypatch: pytest.MonkeyPatch, archive: str
) -> None:
    monkeypatch.setattr("workers.polling.poller._ARCHIVES_WITHIN_S", 0.5)
    server = Publisher(**({"old": archive.encode()} if archive else {}))
    async with raw_publisher(server.answer) as publisher:
        server.pages["feed"] = listing("new", more=archived(publisher.url("/old")))
        held = await made(store, publisher.url("/feed"), listing("a", "b"))
        assert told(await poller(store, reach, Parser()).poll(held, US)) == (["new"], False)


async def test_while_an_archive_is_fetched_others_are_read(store: Store, reach: Fetcher) -> None:
    server = Publisher(other=listing("z", "y"))
    async with raw_publisher(server.answer) as publisher:
        server.pages["feed"] = listing("new", more=archived(publisher.url("/never")))
        polls = poller(store, reach, Parser())
        waiting = asyncio.create_task(polls.poll(await made(store, publisher.url("/feed"), listing("a")), US))
        await until_so(lambda: any("/never" in head for head in publisher.requests), "the archive is asked for")
        other = await polls.poll(await made(store, publisher.url("/other"), listing("y")), US)
        assert told(other) == (["z"], False)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_what_is_new_since_another_node_woke_the_channel_is_not_taken_in_silently(
    store: Store, reach: Fetcher
) -> None:
    server = Publisher(feed=listing("new", "b", "a"))
    async with raw_publisher(server.answer) as publisher:
        held = await made(store, publisher.url("/feed"), listing("a"))
        await store.channels.mark_dormant(held.channel.id)
        held = await loaded(store, held.channel)
        await versioned(store, held, listing("b", "a"))
        poll = await poller(store, reach, Parser()).poll(held, US)
        assert told(poll) == (["new"], False)
        assert poll.found is not None
        assert poll.found.candidate.base_version == 2


async def test_what_two_polls_at_once_find_is_offered_against_the_versions_they_compared_with(
    store: Store, reach: Fetcher
) -> None:
    """Or what the later version has told would be told again."""
    server = Publisher(feed=listing("new", "a"))
    async with raw_publisher(server.answer) as publisher:
        held = await made(store, publisher.url("/feed"), listing("a"))
        polls = poller(store, reach, Parser())
        lane = polls._lanes.choose_for_poll(held)
        async with lane.reading:
            first = asyncio.create_task(polls.poll(held, US))
            await until_so(lambda: lane.reading._waiters, "the first waits for the parser")
            await versioned(store, held, listing("new", "a"))
            await polls._memories.of(msgspec.structs.replace(held.channel, version=2), b"")
            second = asyncio.create_task(polls.poll(held, US))
            await until_so(lambda: len(lane.reading._waiters or ()) == 2, "both wait for the parser")
        find = (await first).found
        assert find is None or find.candidate.base_version == 1
        assert (await second).found is None


async def test_a_channel_that_is_made_again_is_not_compared_with_what_the_former_one_knew(
    store: Store, reach: Fetcher
) -> None:
    server = Publisher(feed=listing("b", "a"))
    async with raw_publisher(server.answer) as publisher:
        polls = poller(store, reach, Parser())
        held = await made(store, publisher.url("/feed"), listing("b", "a"))
        assert (await polls.poll(held, US)).found is None
        await store.remove_channel(held.channel.id)
        server.pages["feed"] = listing("d", "c", "b")
        again = await made(store, publisher.url("/feed"), listing("c", "b"), created_s=2.0)
        assert told(await polls.poll(again, US)) == (["d"], False)


async def test_documents_that_are_too_much_together_are_read_again_without_the_oldest(
    store: Store, reach: Fetcher
) -> None:
    server = Publisher(feed=listing("a"))
    async with raw_publisher(server.answer) as publisher:
        polls = poller(store, reach, Parser(most=2))
        held = await made(store, publisher.url("/feed"), listing("a"))
        outcomes = []
        for number in range(5):
            server.pages["feed"] = listing(f"new {number}", "a")
            poll = await polls.poll(held, US)
            outcomes.append(poll.result.outcome)
        assert outcomes == ["new", "new", ParseKilled.code, "new", ParseKilled.code]


async def test_a_page_is_not_compared_with_what_it_was_before_its_version(store: Store, reach: Fetcher) -> None:
    old, ours, newer = (
        f"<p>Apples</p><p>Pears</p>{more}".encode() for more in ("", "<p>Figs</p>", "<p>Figs</p><p>Plums</p>")
    )
    server = Publisher(page=ours)
    async with raw_publisher(server.answer) as publisher:
        polls = poller(store, reach, Parser())
        held = await made(store, publisher.url("/page"), old, old, kind="page")
        find = (await polls.poll(held, US)).found
        assert find is not None
        await versioned(store, held, newer, newer)
        assert await polls.compare_again(await loaded(store, held.channel), find) is None


async def test_a_channel_that_wakes_up_unchanged_keeps_its_publishers_wishes_and_hubs(
    store: Store, reach: Fetcher
) -> None:
    server = Publisher(feed=b"")
    async with raw_publisher(server.answer) as publisher:
        held = await made(store, publisher.url("/feed"), listing("a"))
        cid = held.channel.id
        wishes = msgspec.msgpack.encode(PollingHints(ttl_s=60.0))
        await store.redis.call("HSET", keys.channel(cid), "etag", '"1"', "dormant", "1", "wishes", wishes)
        held = await loaded(store, held.channel)
        poll = await poller(store, reach, Parser()).poll(held, US)
        assert poll.found is not None
        assert (poll.found.candidate.wishes, poll.topic) == (PollingHints(ttl_s=60.0), "")
