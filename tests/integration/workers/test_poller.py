"""The poller: politeness of a whole fleet, and isolation of publishers from each other."""

import asyncio

import pytest
from structlog.testing import capture_logs

from service.clock import SystemClock
from service.errors import AddressRefused, LimitReached, ParseKilled
from service.feeds.canonical_urls import channel_id
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult
from service.model import Channel, Validators
from service.net.address_guard import AddressGuard
from service.net.fetcher import Fetcher
from service.settings import Settings
from service.store import Store
from service.store.coordination.request_budgets import RateLimit
from tests.support.baseline_lookups import store_only_lookup
from tests.support.raw_http import answering, ok, raw_publisher, redirect
from tests.support.waiting import until_so
from workers.polling.concurrency_limits import POLL_LIMITS, ConcurrencyLanes, ParserTimeBudgets, publisher_of
from workers.polling.politeness import Politeness
from workers.polling.poll_state import PollState
from workers.polling.poller import Poller
from workers.request_handlers.prober import Prober

US = "a" * 40
BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"


class Parser(ParserClient):
    """Finds no changes in any document; killed by the body ``deadly``."""

    def __init__(self) -> None:
        super().__init__()
        self.deaths = 0

    async def detect_changes(self, request: DetectChanges, timeout_s: float = 10.0) -> DetectionResult:  # noqa: ARG002 - it needs none
        if request.documents[-1].body == b"deadly":
            self.deaths += 1
            raise ParseKilled(f"The document at {request.url} took too long.")
        return DetectionResult(request.baseline)


def private_state(url: str) -> PollState:
    return PollState(Channel(channel_id(url), url, private=True), Validators(), 1)


def politeness(store: Store) -> Politeness:
    return Politeness(store.request_budgets, Settings(host_requests_per_s=1000.0))


def lanes(fast: ParserClient | None = None) -> ConcurrencyLanes:
    return ConcurrencyLanes(POLL_LIMITS, fast or Parser(), Parser(), ParserTimeBudgets())


def poller(store: Store, fetcher: Fetcher, *, fast: ParserClient | None = None) -> Poller:
    return Poller(fetcher, politeness(store), lanes(fast), store_only_lookup(store), SystemClock())


def fetcher() -> Fetcher:
    return Fetcher("Coronet/0 (+test)", AddressGuard(allow_private=True))


async def test_retry_after_pauses_a_channel_for_every_node(store: Store) -> None:
    async with raw_publisher(answering(BUSY, then_close=False)) as publisher, fetcher() as reach:
        state = private_state(publisher.url())
        result = (await poller(store, reach).poll(state, US)).result
        assert result.status == 503
        for ask in (
            poller(store, reach).acquire_poll(private_state(publisher.url())),
            Prober(reach, politeness(store), lanes(), SystemClock()).fetch(state.channel, 5.0),
        ):
            with pytest.raises(LimitReached):
                await ask
        assert len(publisher.requests) == 1


@pytest.mark.parametrize(
    ("url", "allowed_by"), [("http://10.0.0.1/feed", "allowed_networks"), ("http://8.8.8.8:9000/feed", "extra_ports")]
)
async def test_the_setting_that_allows_a_refused_address_is_logged(store: Store, url: str, allowed_by: str) -> None:
    async with Fetcher("Coronet/0 (+test)", AddressGuard()) as reach:
        prober = Prober(reach, politeness(store), lanes(), SystemClock())
        with capture_logs() as logs, pytest.raises(AddressRefused):
            await prober.fetch(Channel(channel_id(url), url), 5.0)
    assert [(each["event"], each["allowed_by"]) for each in logs] == [("fetch refused", allowed_by)]


async def test_the_poll_limit_of_a_channel_holds_for_all_nodes(store: Store) -> None:
    """A burst of three, then the configured rate."""
    channel = Channel(channel_id("https://example.org/feed"), "https://example.org/feed")
    granted = 0
    for _ in range(20):
        try:
            await politeness(store).acquire_request(channel)
        except LimitReached:
            continue
        granted += 1
    assert granted == 3


async def test_redirects_are_charged_to_their_target_host(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise many channels elsewhere could cause any number of requests to one host."""
    monkeypatch.setattr("workers.polling.politeness.is_loopback", lambda _: False)
    async with raw_publisher(answering(ok(b"feed"), then_close=False)) as victim:
        leads_there = answering(redirect(victim.url(host="localhost")), then_close=False)
        async with raw_publisher(leads_there) as publisher, fetcher() as reach:
            limited = Politeness(store.request_budgets, Settings(host_requests_per_s=0.01))
            polls = Poller(reach, limited, lanes(), store_only_lookup(store), SystemClock())
            for _ in range(4):
                await polls.poll(private_state(publisher.url()), US)
            with pytest.raises(LimitReached):
                await polls.poll(private_state(publisher.url()), US)
        assert len(victim.requests) == 4


async def test_a_redirect_within_a_host_is_charged_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.polling.politeness.is_loopback", lambda _: False)

    async def lead_to_the_feed(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(b"feed") if head.startswith("GET /feed ") else redirect("/feed"))

    async with raw_publisher(lead_to_the_feed) as publisher, fetcher() as reach:
        limited = Politeness(store.request_budgets, Settings(host_requests_per_s=0.01))
        polls = Poller(reach, limited, lanes(), store_only_lookup(store), SystemClock())
        for _ in range(4):
            await polls.poll(private_state(publisher.url("/moved")), US)
        with pytest.raises(LimitReached):
            await polls.poll(private_state(publisher.url("/moved")), US)
        assert len([head for head in publisher.requests if head.startswith("GET /feed ")]) == 4


async def test_a_token_expires_while_a_poll_waits_for_a_slot(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise polls with tokens taken over some time would be sent all at once when slots become free."""
    monkeypatch.setattr("workers.polling.politeness.is_loopback", lambda _: False)
    async with raw_publisher(answering(ok(b"feed"))) as publisher, fetcher() as reach:
        own_lanes, url = lanes(), publisher.url()
        slots = own_lanes.choose_for_poll(private_state(url)).slots = asyncio.Semaphore(0)
        limited = Politeness(store.request_budgets, Settings(host_requests_per_s=0.01))
        polls = Poller(reach, limited, own_lanes, store_only_lookup(store), SystemClock())
        poll = asyncio.create_task(polls.poll(PollState(Channel(channel_id(url), url), Validators(), 1), US))
        await until_so(lambda: slots._waiters, "the poll is granted and waits for a slot")
        while await store.request_budgets.take_site(RateLimit("127.0.0.1", 0.01, 4)) == 0.0:
            pass
        slots.release()
        with pytest.raises(LimitReached):
            await poll
        assert publisher.requests == []


async def test_a_poll_takes_no_token_granted_after_the_next_poll_of_its_polling_set(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise polls that are too late would use up the few requests that a site gets after a pause."""
    monkeypatch.setattr("workers.polling.politeness.is_loopback", lambda _: False)
    async with raw_publisher(answering(ok(b"feed"))) as publisher, fetcher() as reach:
        clock, url, limit = SystemClock(), publisher.url(), RateLimit("127.0.0.1", 0.5, 4)
        limited = Politeness(store.request_budgets, Settings(host_requests_per_s=limit.requests_per_s))
        polls = Poller(reach, limited, lanes(), store_only_lookup(store), clock)
        while await store.request_budgets.take_site(limit) == 0.0:
            pass
        next_token_s = clock.monotonic_s() + 1 / limit.requests_per_s
        state = PollState(Channel(channel_id(url), url), Validators(), 1)
        with pytest.raises(LimitReached):
            await polls.poll(state, US, clock.wall_s() + 0.5)
        await asyncio.sleep(next_token_s + 0.1 - clock.monotonic_s())
        assert await store.request_budgets.take_site(limit) == 0.0
        assert publisher.requests == []


async def test_a_poll_without_a_slot_before_the_next_poll_of_its_polling_set_is_skipped(store: Store) -> None:
    """Otherwise an overloaded worker would repeat polls later, at the publishers' cost."""
    async with raw_publisher(answering(ok(b"feed"))) as publisher, fetcher() as reach:
        own_lanes, clock = lanes(), SystemClock()
        slots = own_lanes.choose_for_poll(private_state(publisher.url())).slots = asyncio.Semaphore(0)
        polls = Poller(reach, politeness(store), own_lanes, store_only_lookup(store), clock)
        state, now_s = private_state(publisher.url()), clock.wall_s()
        late, early = (asyncio.create_task(polls.poll(state, US, before_s)) for before_s in (now_s, now_s + 1000.0))
        await until_so(lambda: len(slots._waiters or ()) == 2, "both waits for a slot")
        slots.release()
        with pytest.raises(LimitReached, match="another worker"):
            await late
        assert (await early).result.outcome == "unchanged"
        assert len(publisher.requests) == 1


async def test_many_channels_of_a_silent_host_delay_no_other_host(store: Store) -> None:
    async def silent(_head: str, _writer: object) -> None:
        await asyncio.Event().wait()

    feed = answering(ok(b"feed"), then_close=False)
    async with raw_publisher(silent) as dead, raw_publisher(feed) as healthy, fetcher() as reach:
        polls = poller(store, reach)
        waiting = [asyncio.create_task(polls.poll(private_state(dead.url(f"/{n}")), US)) for n in range(200)]
        await until_so(lambda: dead.requests, "the silent host is asked")
        result = (await polls.poll(private_state(healthy.url()), US)).result
        assert result.outcome == "unchanged"
        assert len(dead.requests) <= 3
        for poll in waiting:
            poll.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_document_that_killed_its_parser_is_not_parsed_again(store: Store) -> None:
    parser = Parser()
    async with raw_publisher(answering(ok(b"deadly"), then_close=False)) as publisher, fetcher() as reach:
        polls, state = poller(store, reach, fast=parser), private_state(publisher.url())
        outcomes = [(await polls.poll(state, US)).result.outcome for _ in range(3)]
        assert outcomes == [ParseKilled.code] * 3
        assert parser.deaths == 1


async def test_a_slow_channel_is_polled_in_the_slow_lane_until_it_is_fast_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_publisher(answering(ok(b"feed"), then_close=False)) as publisher, fetcher() as reach:
        polls, state = poller(store, reach), private_state(publisher.url())
        monkeypatch.setattr("workers.polling.poller.FAST_FETCH_S", -1.0)
        await polls.poll(state, US)
        assert state.slow
        monkeypatch.undo()
        lane = polls._lanes.choose_for_poll(state)
        async with lane.site(publisher_of(state)):  # the slow lane has one slot per site
            waiting = asyncio.create_task(polls.poll(state, US))
            prompt = await polls.poll(private_state(publisher.url()), US)
            assert not waiting.done()
        assert prompt.result.outcome == (await waiting).result.outcome == "unchanged"
        assert not state.slow
