"""Request budgets: a bucket grants its burst and then its rate, whichever process takes from it."""

import asyncio

import pytest

from service.errors import RequestsPaused
from service.store import Store
from service.store.client import keys
from service.store.coordination.request_budgets import RateLimit

SLOW = RateLimit("example.org", 0.001, 3)
CHANNEL, OTHER = "c" * 40, "d" * 40
SITE = "example.org"


async def test_a_site_grants_its_burst_and_then_returns_a_wait(store: Store) -> None:
    waits = [await store.request_budgets.take_site(SLOW) for _ in range(4)]
    assert waits[:3] == [0.0, 0.0, 0.0]
    assert 900 < waits[3] <= 1000
    assert await store.request_budgets.take_site(SLOW._replace(name="example.net")) == 0.0


async def test_concurrent_requests_are_granted_only_a_burst(store: Store) -> None:
    waits = await asyncio.gather(*(store.request_budgets.take_site(SLOW) for _ in range(50)))
    assert waits.count(0.0) == 3


async def test_an_egress_group_and_the_site_are_both_limited(store: Store) -> None:
    one, other = RateLimit("one", 0.001, 2), RateLimit("other", 0.001, 2)
    assert [await store.request_budgets.take_site(SLOW, one) > 0 for _ in range(3)] == [False, False, True]
    assert [await store.request_budgets.take_site(SLOW, other) > 0 for _ in range(2)] == [False, True]
    # What the site refused cost the group nothing.
    await store.request_budgets.end_site_pause(SLOW.name)  # the site's bucket is full again, the group's is not
    assert [await store.request_budgets.take_site(SLOW, other) > 0 for _ in range(2)] == [False, True]


async def test_an_admins_rate_applies_until_it_is_cleared(store: Store) -> None:
    for _ in range(3):
        await store.request_budgets.take_site(SLOW)
    await store.request_budgets.set_site_rate("example.org", 0.01)
    assert 90 < await store.request_budgets.take_site(SLOW) <= 100
    assert await store.request_budgets.site_rate("example.org") == 0.01
    await store.request_budgets.clear_site_rate("example.org")
    assert 900 < await store.request_budgets.take_site(SLOW) <= 1000
    assert await store.request_budgets.site_rate("example.org") is None


async def test_an_admins_rate_also_limits_each_egress_group(store: Store) -> None:
    await store.request_budgets.set_site_rate("example.org", 0.01)
    egress = RateLimit("one", 0.001, 1)
    assert await store.request_budgets.take_site(SLOW, egress) == 0.0
    assert 90 < await store.request_budgets.take_site(SLOW, egress) <= 100


async def test_the_debt_of_a_network_is_limited(store: Store) -> None:
    network = RateLimit("192.0.2.0/24", 0.001, 2)
    for _ in range(10):
        await store.request_budgets.charge_network(network)
    assert 2900 < await store.request_budgets.take_network(network) <= 3000


async def test_a_poll_is_granted_again_after_the_wait(store: Store) -> None:
    waits = [await store.request_budgets.take_poll(CHANNEL, 12.0, SITE) for _ in range(4)]
    assert waits[:3] == [(0.0, 0.0, 0.0)] * 3
    assert 290 < waits[3].poll_s <= 300


async def test_a_pause_takes_no_tokens_and_expires(store: Store) -> None:
    assert await store.request_budgets.paused_s(CHANNEL) == 0.0
    await store.request_budgets.pause(CHANNEL, 100.0)
    assert 90 < await store.request_budgets.paused_s(CHANNEL) <= 100
    for _ in range(9):
        assert 90 < (await store.request_budgets.take_poll(CHANNEL, 12.0, SITE)).paused_s <= 100
    await store.redis.call("PEXPIRE", keys.poll_pause(CHANNEL), 0)
    assert await store.request_budgets.take_poll(CHANNEL, 12.0, SITE) == (0.0, 0.0, 0.0)


async def test_a_poll_takes_tokens_of_channel_and_network_together(store: Store) -> None:
    network = RateLimit("192.0.2.0/24", 0.001, 1)
    assert await store.request_budgets.take_poll(CHANNEL, 12.0, SITE, network) == (0.0, 0.0, 0.0)
    again = await store.request_budgets.take_poll(CHANNEL, 12.0, SITE, network)
    assert again.poll_s == 0.0
    assert 900 < again.network_s <= 1000


async def test_a_full_bucket_expires(store: Store) -> None:
    await store.request_budgets.take_site(SLOW._replace(requests_per_s=1.0))
    assert 60 <= await store.redis.call("TTL", keys.site_budget("example.org")) <= 61


async def test_all_rates_of_admins_are_listed(store: Store) -> None:
    assert await store.request_budgets.site_rates() == {}
    await store.request_budgets.set_site_rate("example.org", 0.25)
    await store.request_budgets.set_site_rate("example.net", 2.0)
    await store.request_budgets.clear_site_rate("example.net")
    assert await store.request_budgets.site_rates() == {"example.org": 0.25}


async def test_a_refused_poll_takes_no_token(store: Store) -> None:
    network = RateLimit("192.0.2.0/24", 0.001, 2)
    await store.request_budgets.pause(CHANNEL, 100.0)
    await store.request_budgets.pause_site("example.net", 100.0)
    for _ in range(9):
        assert (await store.request_budgets.take_poll(CHANNEL, 12.0, SITE, network)).paused_s > 0
        assert (await store.request_budgets.take_poll(OTHER, 12.0, "example.net", network)).paused_s > 0
    granted = [await store.request_budgets.take_poll(OTHER, 12.0, SITE) for _ in range(4)]
    assert [delays.poll_s > 0 for delays in granted] == [False, False, False, True]
    for _ in range(9):
        assert (await store.request_budgets.take_poll(OTHER, 12.0, SITE, network)).poll_s > 0
    assert [await store.request_budgets.take_network(network) > 0 for _ in range(3)] == [False, False, True]


async def _refused_for_s(store: Store, site: RateLimit = SLOW) -> float:
    with pytest.raises(RequestsPaused) as refused:
        await store.request_budgets.take_site(site)
    return refused.value.paused_s


async def test_a_paused_site_gets_no_request_from_any_channel(store: Store) -> None:
    assert await store.request_budgets.pause_site(SITE, 100.0) == 100.0
    assert 90 < await _refused_for_s(store) <= 100
    for channel in (CHANNEL, OTHER):
        assert 90 < (await store.request_budgets.take_poll(channel, 12.0, SITE)).paused_s <= 100
        assert 90 < await store.request_budgets.paused_s(channel, SITE) <= 100
    assert 90 < await store.request_budgets.site_paused_s(SITE) <= 100
    assert await store.request_budgets.site_paused_s("example.net") == 0.0


async def test_a_site_is_paused_for_the_longest_requested_time_within_bounds(store: Store) -> None:
    assert await store.request_budgets.pause_site(SITE, 0.0) == 30.0
    assert await store.request_budgets.pause_site(SITE, 300.0) == 300.0
    assert 290 < await store.request_budgets.pause_site(SITE, 60.0) <= 300
    assert await store.request_budgets.pause_site(SITE, 1e9) == 86_400.0


async def _end_pause(store: Store, ago_s: float = 0.0) -> None:
    """Let the pause of ``SITE`` have ended ``ago_s`` seconds ago."""
    ago_ms = int(ago_s * 1000)
    await store.redis.call("PEXPIRE", keys.site_pause(SITE), 3_600_000 - ago_ms)
    now_s, _ = await store.redis.call("TIME")
    await store.redis.call("HSET", keys.site_budget(SITE), "at_ms", int(now_s) * 1000 - ago_ms)


async def test_pauses_of_a_site_without_a_requested_time_double_up_to_a_day(store: Store) -> None:
    paused_s = []
    for _ in range(15):
        paused_s.append(await store.request_budgets.pause_site(SITE, None))
        assert await store.request_budgets.pause_site(SITE, None) <= paused_s[-1]  # an answer that was under way
        await _end_pause(store)
    assert paused_s[:4] == [30.0, 60.0, 120.0, 240.0]
    assert paused_s[-1] == 86_400.0


async def test_requests_resume_slowly_after_a_pause(store: Store) -> None:
    site = RateLimit(SITE, 1.0, 4)
    await store.request_budgets.pause_site(SITE, 100.0)
    await _end_pause(store)
    assert 14 < await store.request_budgets.take_site(site) <= 16.1
    await _end_pause(store, 59.0)
    waits = await asyncio.gather(*(store.request_budgets.take_site(site) for _ in range(9)))
    assert waits.count(0.0) == 1  # no burst, even after a minute
    await _end_pause(store, 130.0)
    assert await store.request_budgets.take_site(site) == 0.0
    assert 3 < await store.request_budgets.take_site(site) <= 4.1
    await _end_pause(store, 250.0)
    waits = await asyncio.gather(*(store.request_budgets.take_site(site) for _ in range(9)))
    assert waits.count(0.0) == 4


async def test_an_admin_can_end_the_pause_of_a_site(store: Store) -> None:
    await store.request_budgets.pause_site(SITE, 100.0)
    await store.request_budgets.end_site_pause(SITE)
    assert await store.request_budgets.take_site(SLOW) == 0.0
