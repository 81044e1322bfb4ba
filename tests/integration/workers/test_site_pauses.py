"""Publishers that limit requests: pauses of a site hold for all its channels and all workers."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from math import inf

import pytest
import pytest_asyncio
from aiohttp import web

from service.clock import SystemClock
from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation
from service.embedded.ports import LOOPBACK
from service.errors import AssignmentPending, LimitReached, RequestsPaused
from service.feeds.canonical_urls import channel_id
from service.model import Channel, PollResult, Validators
from service.net.address_guard import AddressGuard
from service.net.fetcher import Fetcher
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_poller import Parser, fetcher, lanes, politeness
from tests.integration.workers.test_worker_fleet import nodes_in_the_ring
from tests.support.baseline_lookups import store_only_lookup
from tests.support.channels import make_channel, polled
from tests.support.http_server import serving_locally
from tests.support.waiting import until
from workers.polling.concurrency_limits import POLL_LIMITS, ConcurrencyLanes, ParserTimeBudgets
from workers.polling.politeness import BURST, Politeness, pausable_site
from workers.polling.poll_state import PollState
from workers.polling.poller import Poller
from workers.request_handlers.prober import Prober

NODE = "a" * 40
CHANNELS = 50
WORKERS = 4
SPREAD_S = 0.05
ANSWERED_S = 1.0
"""Requests that arrive so soon after the first one were sent before its answer arrived."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The usual settings with the shortest intervals."""
    often = {"max_polls_per_hour": 36_000.0, "polls_per_hour_for_one_subscriber": 36_000.0}
    return settings.model_copy(update={"poll_interval_s": 1.0, "maintenance_interval_s": 0.5, **often})


class Site:
    """A site that answers all requests with ``status`` and ``headers``.

    ``requests`` counts the requests that arrive after the first has been answered, and ``first`` those before.
    """

    def __init__(self) -> None:
        self.status = 429
        self.headers = {"Retry-After": "600"}
        self.body = ""
        self.forget()
        self.url = ""

    def forget(self) -> None:
        self.first, self.requests, self.first_s = 0, 0, inf

    async def serve(self, _: web.Request) -> web.Response:
        now_s = asyncio.get_running_loop().time()
        self.first_s = min(self.first_s, now_s)
        if now_s < self.first_s + ANSWERED_S:
            self.first += 1
        else:
            self.requests += 1
        return web.Response(
            status=self.status, headers=self.headers, text=self.body, content_type="application/rss+xml"
        )

    def channels(self) -> list[Channel]:
        """Return public channels of this site."""
        return [Channel(channel_id(url), url) for url in (f"{self.url}/{number}" for number in range(CHANNELS))]


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    async with serving_locally(site.serve) as site.url:
        yield site


@pytest_asyncio.fixture
async def workers(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Poller]]:
    """Pollers of several workers, for which this machine is a public site."""
    monkeypatch.setattr("workers.polling.politeness.is_loopback", lambda _: False)
    async with Fetcher("Coronet/0 (+test)", AddressGuard(allow_private=True)) as fetcher:
        yield [
            Poller(
                fetcher,
                Politeness(store.request_budgets, Settings()),
                ConcurrencyLanes(POLL_LIMITS, Parser(), Parser(), ParserTimeBudgets()),
                store_only_lookup(store),
                SystemClock(),
            )
            for _ in range(WORKERS)
        ]


async def _poll(poller: Poller, channel: Channel, at_s: float) -> bool:
    """Poll the channel in ``at_s`` seconds; return whether the poll was refused because of a pause."""
    await asyncio.sleep(at_s)
    state = PollState(channel, Validators(), 1)
    try:
        await poller.acquire_poll(state)
        await poller.poll(state, NODE)
    except RequestsPaused:
        return True
    except LimitReached:
        pass
    return False


async def _poll_all(workers: list[Poller], site: Site, spread_s: float = SPREAD_S) -> int:
    """Poll all channels of a site by workers in turn, one shortly after the other; return how many pauses refused."""
    polls = (
        _poll(workers[number % WORKERS], channel, number * spread_s) for number, channel in enumerate(site.channels())
    )
    return sum(await asyncio.gather(*polls))


@pytest.mark.parametrize(
    ("status", "headers"), [(429, {"Retry-After": "600"}), (503, {"Retry-After": "600"}), (429, {})]
)
async def test_fifty_channels_of_a_busy_site_cause_at_most_two_requests_in_a_pause(
    store: Store, site: Site, workers: list[Poller], status: int, headers: dict[str, str]
) -> None:
    site.status, site.headers = status, headers
    refused = await _poll_all(workers, site)
    assert site.first <= BURST
    assert refused >= CHANNELS - BURST
    for _ in range(2):
        assert await _poll_all(workers, site, SPREAD_S / 10) == CHANNELS
    assert site.requests == 0
    # The pause ends, and the site is still busy.
    name = pausable_site(site.url)
    await store.redis.call("PEXPIRE", keys.site_pause(name), 3_600_000 - 30_000)
    await store.redis.call("HSET", keys.site_budget(name), "at_ms", 0)
    site.forget()
    await _poll_all(workers, site)
    assert 1 <= site.first + site.requests <= 2


async def test_a_paused_site_gets_no_request_for_a_new_subscription(
    store: Store, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.polling.politeness.is_loopback", lambda _: False)
    await store.request_budgets.pause_site(pausable_site(site.url), 60.0)
    async with fetcher() as reach:
        prober = Prober(reach, politeness(store), lanes(), SystemClock())
        with pytest.raises(RequestsPaused):
            await prober.fetch(site.channels()[0], 5.0)
    assert site.first == 0


async def test_a_busy_target_of_a_redirect_is_paused_and_so_is_the_channel(
    store: Store, site: Site, workers: list[Poller]
) -> None:
    async def lead_there(_: web.Request) -> web.Response:
        raise web.HTTPFound(site.url.replace(LOOPBACK, "localhost") + "/feed")

    async with serving_locally(lead_there) as base:
        url = f"{base}/feed"
        assert not await _poll(workers[0], Channel(channel_id(url), url), 0.0)
        assert await _poll(workers[1], Channel(channel_id(url), url), 0.0)
    assert await store.request_budgets.site_paused_s("localhost") > 0
    assert await store.request_budgets.site_paused_s(LOOPBACK) == 0.0
    assert site.first + site.requests == 1


async def test_a_feed_with_an_hourly_ttl_is_planned_hourly(store: Store, site: Site, start_worker: StartWorker) -> None:
    site.status, site.headers = 200, {"Cache-Control": "max-age=600"}
    site.body = """<rss version="2.0"><channel><title>Blog</title><ttl>60</ttl>
        <item><guid>1</guid><title>One</title></item></channel></rss>"""
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await make_channel(store, f"{site.url}/feed", listed=True)
    await store.worker_requests.announce_channel(channel.id)

    async def planned_hourly() -> PollExplanation | None:
        try:
            why = await store.worker_requests.explain(channel.id)
        except AssignmentPending:
            return None
        return why if why.bound is BindingConstraint.PUBLISHER else None

    why = await until(planned_hourly, "the owner knows what the publisher asks for")
    assert why is not None
    assert why.wait_s == pytest.approx(1_800.0)
    assert why.publisher_interval_s == 3_600.0
    probed = await store.worker_requests.probe(f"{site.url}/blog")
    assert probed.channel is not None
    (stored,) = await store.channels.states([probed.channel.id])
    assert stored is not None
    assert (stored.polling_hints.ttl_s, stored.polling_hints.max_age_s) == (3_600.0, 600.0)


async def test_a_new_owner_applies_the_stored_back_off_and_pause_of_a_channel(
    store: Store, site: Site, start_worker: StartWorker
) -> None:
    failing, paused = [await make_channel(store, f"{site.url}/{name}", listed=True) for name in ("failing", "paused")]
    for at_s in (1_000.0, 1_900.0, 2_800.0, 4_600.0, 8_200.0, 15_400.0):
        await polled(store, failing.id, PollResult(NODE, at_s, "not-a-feed", 200))
    await store.admin_settings.pause([paused.id], 86_400.0)
    await start_worker()
    await nodes_in_the_ring(store, 1)

    async def explained(channel: Channel) -> PollExplanation | None:
        with contextlib.suppress(AssignmentPending):
            return await store.worker_requests.explain(channel.id)
        return None

    why = await until(lambda: explained(failing), "the failing channel is planned")
    assert why is not None
    assert (why.bound, why.publisher_interval_s) == (BindingConstraint.FAILURE, 14_400.0)
    why = await until(lambda: explained(paused), "the paused channel is planned")
    assert why is not None
    assert why.bound is BindingConstraint.PAUSE
    assert why.paused_until_s > time.time() + 86_000.0
    assert site.first == 0
