"""Politeness: which budgets a request takes tokens from, and how many round trips that costs."""

import asyncio
from unittest.mock import Mock

import pytest

from service.errors import HostBlocked, LimitReached
from service.feeds.canonical_urls import channel_id, host_of
from service.model import Channel, Validators
from service.settings import Settings
from service.store import Store
from service.store.coordination.request_budgets import RateLimit
from workers.polling.politeness import BURST, Politeness
from workers.polling.poll_state import PollState

OFTEN = Settings(
    host_requests_per_s=0.01,
    address_requests_per_s=0.01,
    max_polls_per_hour=1e6,
    polls_per_hour_for_one_subscriber=1e6,
)
GROUP = "93.184.216.0/24"


def channel(url: str, *, private: bool = False) -> Channel:
    return Channel(channel_id(url), url, private=private)


def poll_state(url: str, group: str = "") -> PollState:
    return PollState(channel(url), Validators(), 1, address_group=group)


async def ask(politeness: Politeness, state: PollState) -> None:
    await politeness.acquire_poll(state)
    await politeness.acquire_site(state.channel)


async def granted(politeness: Politeness, urls: list[str], group: str = "") -> int:
    outcomes = await asyncio.gather(*(ask(politeness, poll_state(url, group)) for url in urls), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, LimitReached)]
    assert outcomes.count(None) + len(refused) == len(urls)
    return outcomes.count(None)


async def test_all_hosts_of_a_site_share_a_budget_across_workers(store: Store) -> None:
    workers = [Politeness(store.request_budgets, OFTEN) for _ in range(4)]
    urls = [f"https://{name}.example.co.uk/feed" for name in ("www", "news", "blog", "ada", "bob")]
    counts = await asyncio.gather(*(granted(worker, urls) for worker in workers))
    assert sum(counts) == BURST - 1


async def test_all_sites_of_a_network_share_a_budget(store: Store) -> None:
    politeness = Politeness(store.request_budgets, OFTEN)
    urls = [f"https://site{n}.example/feed" for n in range(20)]
    assert await granted(politeness, urls, GROUP) == BURST - 1


async def test_a_newly_resolved_network_is_charged_once(store: Store) -> None:
    politeness = Politeness(store.request_budgets, OFTEN)
    group = ""
    for _ in range(3):
        group = await politeness.charge_network("93.184.216.34", group)
    assert group == GROUP
    left = [await store.request_budgets.take_network(RateLimit(GROUP, 0.01, BURST - 1)) == 0.0 for _ in range(BURST)]
    assert left.count(True) == BURST - 2


@pytest.mark.parametrize("address", ["", "127.0.0.1", "10.0.0.1", "fe80::1%eth0"])
async def test_addresses_that_are_not_public_have_no_network(store: Store, address: str) -> None:
    assert await Politeness(store.request_budgets, OFTEN).charge_network(address) == ""


async def test_workers_of_one_egress_group_share_a_budget(store: Store) -> None:
    wide = OFTEN.model_copy(
        update={"host_requests_per_s": 1000.0, "address_requests_per_s": 10.0, "egress_requests_per_s": 0.01}
    )
    north, also_north, south = (
        Politeness(store.request_budgets, wide.model_copy(update={"egress_group": name}))
        for name in ("north", "north", "south")
    )
    urls = [f"https://example.org/{n}" for n in range(6)]
    assert await granted(north, urls) + await granted(also_north, urls) == BURST - 1
    assert await granted(south, urls) == BURST - 1


async def test_a_rate_set_by_an_admin_applies_at_once(store: Store) -> None:
    politeness = Politeness(store.request_budgets, OFTEN)
    assert await granted(politeness, [f"https://example.org/{n}" for n in range(9)]) == BURST - 1
    await store.request_budgets.set_site_rate("example.org", 1000.0)
    assert await granted(politeness, [f"https://www.example.org/{n}" for n in range(9)]) == 9


async def test_a_blocked_host_gets_no_request_or_redirect(store: Store) -> None:
    politeness = Politeness(store.request_budgets, OFTEN)
    politeness.set_blocked_hosts({"example.org", "news.example.net"})
    for url in ("https://www.example.org/feed", "https://news.example.net/"):
        with pytest.raises(HostBlocked):
            await politeness.acquire_request(channel(url))
        with pytest.raises(HostBlocked):
            await politeness.acquire_redirect(host_of(url))
    await politeness.acquire_request(channel("https://example.net/"))
    politeness.set_blocked_hosts(())
    await politeness.acquire_request(channel("https://www.example.org/feed"))


async def test_a_poll_costs_two_round_trips_for_a_public_host_and_one_for_a_private_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = Mock(wraps=store.redis._prompt.call_each)
    monkeypatch.setattr(store.redis._prompt, "call_each", each)
    politeness = Politeness(store.request_budgets, Settings())
    await ask(politeness, poll_state("https://example.org/feed", GROUP))
    assert await politeness.charge_network("93.184.216.35", GROUP) == GROUP
    assert each.call_count == 2
    await ask(politeness, poll_state("http://127.0.0.1/feed"))
    assert each.call_count == 3
    await ask(politeness, PollState(channel("http://intranet.example/feed", private=True), Validators(), 1))
    assert each.call_count == 4


async def test_concurrent_polls_share_one_round_trip(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    politeness = Politeness(store.request_budgets, Settings())
    await store.request_budgets.pause(channel("http://127.0.0.1/7").id, 60.0)
    each = Mock(wraps=store.redis._prompt.call_each)
    monkeypatch.setattr(store.redis._prompt, "call_each", each)
    asked = [politeness.acquire_poll(poll_state(f"http://127.0.0.1/{number}")) for number in range(20)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [number for number, outcome in enumerate(outcomes) if isinstance(outcome, LimitReached)] == [7]
    assert each.call_count == 1
