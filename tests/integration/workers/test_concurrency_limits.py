"""Concurrency limits: slots and parser time are divided by site and network, however many hosts there are."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from service.errors import LimitReached
from service.feeds.canonical_urls import channel_id
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import DetectChanges, Document
from service.model import Channel, Validators
from service.store import Store
from tests.integration.workers.test_poller import US, Parser, fetcher, poller
from tests.support.feed_documents import item, rss
from tests.support.raw_http import RawPublisher, answering, ok, raw_publisher
from tests.support.waiting import until_so
from workers.polling.concurrency_limits import (
    NETWORK_ALLOWANCE,
    POLL_LIMITS,
    PROBE_LIMITS,
    SITE_ALLOWANCE,
    ConcurrencyLanes,
    ParserTimeBudgets,
    Publisher,
    publisher_of,
)
from workers.polling.poll_state import PollState

NETWORK = "45.33.34.0/24"
OTHER_NETWORK = "45.33.35.0/24"


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve all names below .example to this machine, as public hosts."""
    here = [{"hostname": "", "host": "127.0.0.1", "port": 0, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    async def resolved(_self: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        return [{**found, "hostname": host, "port": port, "family": family or socket.AF_INET} for found in here]

    monkeypatch.setattr(aiohttp.DefaultResolver, "resolve", resolved)


@pytest_asyncio.fixture
async def silent() -> AsyncIterator[RawPublisher]:
    async def nothing(_head: str, _writer: object) -> None:
        await asyncio.Event().wait()

    async with raw_publisher(nothing) as publisher:
        yield publisher


def poll_state(url: str, network: str = "") -> PollState:
    return PollState(Channel(channel_id(url), url), Validators(), 1, address_group=network)


def publisher(url: str, network: str) -> Publisher:
    return publisher_of(poll_state(url, network))


async def requests_while_another_is_polled(store: Store, silent: RawPublisher, *states: PollState) -> int:
    """Return the number of requests at a silent publisher when another publisher's feed has been polled."""
    feed = answering(ok(b"feed"), then_close=False)
    async with raw_publisher(feed) as healthy, fetcher() as reach:
        polls = poller(store, reach)
        waiting = [asyncio.create_task(polls.poll(state, US)) for state in states]
        await until_so(lambda: silent.requests, "the silent publisher is asked")
        result = (await polls.poll(poll_state(healthy.url(host="healthy.example"), OTHER_NETWORK), US)).result
        assert result.outcome == "unchanged"
        asked = len(silent.requests)
        for poll in waiting:
            poll.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return asked


async def test_hosts_of_one_domain_share_its_slots(store: Store, silent: RawPublisher) -> None:
    states = [poll_state(silent.url(host=f"host{number}.slow.example"), NETWORK) for number in range(100)]
    assert await requests_while_another_is_polled(store, silent, *states) <= 3


async def test_domains_in_one_network_share_its_slots(store: Store, silent: RawPublisher) -> None:
    states = [poll_state(silent.url(host=f"slow{number}.example"), NETWORK) for number in range(100)]
    assert await requests_while_another_is_polled(store, silent, *states) <= 8


async def test_publishers_of_unknown_networks_leave_slots_to_others(store: Store, silent: RawPublisher) -> None:
    states = [poll_state(silent.url(host=f"slow{number}.example")) for number in range(100)]
    assert await requests_while_another_is_polled(store, silent, *states) <= 32


async def examined(lanes: ConcurrencyLanes, state: PollState, inner: str = "") -> list[str]:
    """Parse a feed as a poll does; return the keys of its entries."""
    url, body = state.channel.url, rss([item("a")]).replace(b"</channel>", inner.encode() + b"</channel>")
    job = DetectChanges((Document(body, url, {"content-type": "text/xml"}),), b"", url, "feed", 1.8e9)
    return [entry.key for entry in (await lanes.detect_changes(job, state)).latest]


@pytest.mark.timeout(60)
async def test_a_costly_document_is_parsed_in_the_slow_lane_and_charged_to_its_publisher() -> None:
    budgets = ParserTimeBudgets()
    async with ParserClient() as fast, ParserClient() as slow:
        lanes = ConcurrencyLanes(POLL_LIMITS, fast, slow, budgets)
        state, other_state = (poll_state(f"http://host{number}.slow.example/", NETWORK) for number in (1, 2))
        assert await examined(lanes, state) != []
        assert (state.costly, slow.cpu_s) == (False, 0.0)
        assert await examined(lanes, state, "<b>" * 45_000) != []
        assert state.costly
        assert fast.cpu_s < slow.cpu_s
        while lanes.choose_for_poll(other_state) is not lanes.choose_for_poll(state):
            await examined(lanes, state, "<b>" * 45_000)
        fast_s = fast.cpu_s
        assert await examined(lanes, other_state) != []
        assert fast.cpu_s == fast_s, "another host of that site is read by the slow parser, too"
        await examined(lanes, poll_state("http://healthy.example/", OTHER_NETWORK))
        assert fast.cpu_s > fast_s


async def test_a_slowly_fetched_document_is_parsed_in_the_fast_lane() -> None:
    """On a slow machine all fetches are slow: their documents must not wait for one process of low priority."""
    async with ParserClient() as fast, ParserClient() as slow:
        lanes = ConcurrencyLanes(POLL_LIMITS, fast, slow, ParserTimeBudgets())
        state = poll_state("http://x.example/")
        state.slow = True
        assert await examined(lanes, state) != []
        assert (fast.cpu_s > 0.0, slow.cpu_s) == (True, 0.0)


def lane_of(budgets: ParserTimeBudgets, url: str, network: str) -> str:
    lanes = ConcurrencyLanes(POLL_LIMITS, Parser(), Parser(), budgets)
    slow = poll_state("http://x.example/")
    slow.slow = True
    return "slow" if lanes.choose_for_poll(poll_state(url, network)) is lanes.choose_for_poll(slow) else "fast"


def test_domains_in_one_network_share_its_parser_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr("workers.polling.concurrency_limits.time.monotonic", lambda: now_s)
    budgets = ParserTimeBudgets()
    for number in range(int(2 * NETWORK_ALLOWANCE.burst_s / SITE_ALLOWANCE.burst_s)):
        budgets.charge(publisher(f"http://slow{number}.example/", NETWORK), 0.9 * SITE_ALLOWANCE.burst_s)
    assert lane_of(budgets, "http://another.example/", NETWORK) == "slow"
    assert lane_of(budgets, "http://slow0.example/", OTHER_NETWORK) == "fast"
    now_s += 61.0
    assert lane_of(budgets, "http://another.example/", NETWORK) == "fast", "what was taken leaks away"


def test_a_loopback_publisher_has_no_parser_time_budget() -> None:
    budgets = ParserTimeBudgets()
    budgets.charge(publisher("http://127.0.0.1:8000/", ""), 1_000.0)
    assert lane_of(budgets, "http://127.0.0.1:8000/", "") == "fast"


def test_budgets_of_many_sites_use_bounded_memory() -> None:
    budgets = ParserTimeBudgets()
    for number in range(11_000):
        budgets.charge(publisher(f"http://slow{number}.example/", ""), 5.0)
    assert len(budgets._buckets) == 10_000
    assert lane_of(budgets, "http://slow10999.example/", "") == "slow"


async def test_probes_of_one_domain_leave_slots_to_others() -> None:
    lanes = ConcurrencyLanes(PROBE_LIMITS, Parser(), Parser(), ParserTimeBudgets())
    async with AsyncExitStack() as held:
        for number in (1, 2):
            await held.enter_async_context(lanes.hold_slot(poll_state(f"http://host{number}.slow.example/", NETWORK)))
        third = asyncio.create_task(
            held.enter_async_context(lanes.hold_slot(poll_state("http://slow.example/", NETWORK)))
        )
        async with lanes.hold_slot(poll_state("http://healthy.example/", OTHER_NETWORK)):
            assert not third.done()
        with pytest.raises(LimitReached, match="Too many URLs"):
            await third
