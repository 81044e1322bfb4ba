"""The runner of imports: many feeds at once, one of a site at a time, and later attempts, without Redis."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.errors import HostNotFound, LimitReached, NotAFeed, NoWorker, RequestsPaused, StoreUnavailable
from service.feeds.canonical_urls import host_of
from service.feeds.opml_import import ImportOutcome, QueuedFeed
from service.feeds.opml_writer import OpmlSubscription
from service.model import Channel
from service.opml_import_runner import PARALLEL_FEEDS, AddFeed, ImportRunner, RetryLater
from service.store import Store
from service.store.coordination.worker_requests import ProbeReply
from service.store.subscriptions.opml_imports import ImportJobs

BUSY = LimitReached("The fleet's request limit for example.org is used up.")


class Jobs:
    """One import in memory."""

    def __init__(self, *urls: str) -> None:
        self.queue = {url.encode(): QueuedFeed(url) for url in urls}
        self.outcomes: dict[str, ImportOutcome] = {}

    async def pending(self, _owner: str) -> dict[bytes, QueuedFeed]:
        return dict(self.queue)

    async def has_pending(self, _owner: str) -> bool:
        return bool(self.queue)

    async def record(self, _owner: str, packed: bytes, outcome: ImportOutcome) -> bool:
        feed = self.queue.pop(packed, None)
        if feed is not None:
            self.outcomes[feed.url] = outcome
        return feed is not None


async def run(jobs: Jobs, add: AddFeed) -> None:
    async with asyncio.timeout(10):
        await ImportRunner(cast("Store", None), cast("ImportJobs", jobs)).run("me", add)


async def most_at_once(*urls: str) -> tuple[int, int]:
    """Import these feeds; return how many were added at the same time, and how many of one site."""
    at_once = Counter[str]()
    most = most_of_site = 0

    async def add(feed: OpmlSubscription) -> bool:
        nonlocal most, most_of_site
        site = host_of(feed.url)
        at_once[site] += 1
        most, most_of_site = max(most, at_once.total()), max(most_of_site, at_once[site])
        await asyncio.sleep(0.001)
        at_once[site] -= 1
        return True

    jobs = Jobs(*urls)
    await run(jobs, add)
    assert jobs.outcomes == dict.fromkeys(urls, True)
    return most, most_of_site


async def test_many_feeds_are_added_at_once_but_one_of_a_site() -> None:
    urls = [f"https://site{number % 40}.example/{number}" for number in range(200)]
    assert await most_at_once(*urls) == (PARALLEL_FEEDS, 1)


async def test_feeds_on_this_machine_are_added_at_once() -> None:
    assert await most_at_once(*(f"http://127.0.0.1:8000/{number}" for number in range(100))) == (PARALLEL_FEEDS,) * 2


async def test_imports_of_one_process_share_its_slots() -> None:
    running = most = 0

    async def add(_feed: OpmlSubscription) -> bool:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return True

    lists = {str(owner): Jobs(*(f"http://127.0.0.1/{owner}/{number}" for number in range(50))) for owner in range(3)}

    class Lists:
        def __getattr__(self, name: str) -> Any:
            return lambda owner, *rest: getattr(lists[owner], name)(owner, *rest)

    runner = ImportRunner(cast("Store", None), cast("ImportJobs", Lists()))
    await asyncio.gather(*(runner.run(owner, add) for owner in lists))
    assert most == PARALLEL_FEEDS


async def test_a_feed_of_a_busy_publisher_is_added_later_and_others_meanwhile() -> None:
    attempts = Counter[str]()
    order: list[str] = []

    async def add(feed: OpmlSubscription) -> bool:
        attempts[feed.url] += 1
        if "busy" in feed.url and attempts[feed.url] < 4:
            raise RetryLater(BUSY, 1, 0.0)
        order.append(feed.url)
        return False

    jobs = Jobs("https://busy.example/1", *(f"https://site{number}.example/" for number in range(30)))
    await run(jobs, add)
    assert order[-1] == "https://busy.example/1"
    assert set(jobs.outcomes.values()) == {False}


async def test_a_feed_that_can_never_be_looked_at_fails_with_the_reason() -> None:
    attempts = 0

    async def add(_feed: OpmlSubscription) -> bool:
        nonlocal attempts
        attempts += 1
        raise RetryLater(BUSY, 30, 0.0)

    jobs = Jobs("https://example.org/")
    await run(jobs, add)
    assert (jobs.outcomes, attempts) == ({"https://example.org/": BUSY}, 10)


async def test_errors_of_feeds_are_recorded_and_an_unavailable_store_ends_the_run() -> None:
    error: Exception = HostNotFound("example.org has no address.")

    async def add(_feed: OpmlSubscription) -> bool:
        raise error

    jobs = Jobs("https://example.org/")
    await run(jobs, add)
    assert jobs.outcomes == {"https://example.org/": error}
    jobs, error = Jobs("https://example.org/"), StoreUnavailable("Redis is away.")
    with pytest.raises(StoreUnavailable):
        await run(jobs, add)
    assert jobs.queue


@pytest.mark.parametrize("raised", [None, RetryLater(BUSY, 0, 0.0)])
async def test_a_stopped_import_ends(raised: Exception | None) -> None:
    jobs = Jobs(*(f"https://example.org/{number}" for number in range(1_000)))

    async def add(feed: OpmlSubscription) -> bool:
        if feed.url.endswith("/5"):
            jobs.queue.clear()
        if raised is not None:
            raise raised
        return True

    await run(jobs, add)
    assert len(jobs.outcomes) == (0 if raised else 5)


async def test_feeds_that_are_queued_during_a_run_are_added() -> None:
    jobs = Jobs("https://example.org/1")

    async def add(feed: OpmlSubscription) -> bool:
        if feed.url.endswith("1"):
            jobs.queue[b"2"] = QueuedFeed("https://example.org/2")
        return True

    await run(jobs, add)
    assert list(jobs.outcomes) == ["https://example.org/1", "https://example.org/2"]


@pytest.mark.parametrize(
    ("found", "workers", "attempts"),
    [
        (BUSY, 1, 1),
        (RequestsPaused("example.org asked not to be polled for another 90 s."), 1, 30),
        (NoWorker("No worker answered within 10 s."), 1, 30),
        (NoWorker("No worker is running."), 0, 0),
        (HostNotFound("example.org has no address."), 1, None),
        (StoreUnavailable("Redis is away."), 1, None),
    ],
)
async def test_what_counts_as_a_failed_attempt(found: Exception, workers: int, attempts: int | None) -> None:
    async def probe(_url: str, *, as_page: bool) -> ProbeReply:
        assert as_page
        raise found

    async def nodes() -> list[None]:
        return [None] * workers

    store = SimpleNamespace(worker_requests=SimpleNamespace(probe=probe), ring=SimpleNamespace(nodes=nodes))
    runner = ImportRunner(cast("Store", store), cast("ImportJobs", None))
    with pytest.raises(type(found) if attempts is None else RetryLater) as raised:
        await runner.find_or_create_channel(OpmlSubscription("https://example.org/", page=True))
    assert attempts is None or cast("RetryLater", raised.value).attempts == attempts


async def test_the_channel_that_a_worker_finds_is_used_unless_there_is_none() -> None:
    replies = iter([ProbeReply(Channel("a" * 40, "https://example.org/")), ProbeReply(page=True)])

    async def probe(_url: str, *, as_page: bool) -> ProbeReply:
        assert not as_page
        return next(replies)

    runner = ImportRunner(
        cast("Store", SimpleNamespace(worker_requests=SimpleNamespace(probe=probe))), cast("ImportJobs", None)
    )
    assert await runner.find_or_create_channel(OpmlSubscription("https://example.org/")) == "a" * 40
    with pytest.raises(NotAFeed):
        await runner.find_or_create_channel(OpmlSubscription("https://example.org/"))
