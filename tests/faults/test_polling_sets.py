"""Faults of the control plane: within 30 s polling sets are whole again; budgets hold and every entry is told once.

Entries are published all the time. Polling sets are whole if exactly the nodes that the console's API names poll each
channel, by the publishers' journal. Takes two minutes: ``make faults``.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
import pytest_asyncio

from service.embedded.private_redis import PrivateRedis
from service.overlay.ring import from_hex
from tests.support.polling_audit import most_at_once
from tests.support.public_fleet import Feed, PublicFleet, public_fleet
from tests.support.waiting import until
from workers.polling.politeness import BURST

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

WORKERS = 4
POLL_INTERVAL_S = 5.0
LEASE_S = 2.0
SITE_REQUESTS_PER_S = 1.0
BUDGET_PER_MINUTE = 400.0
HEALED_WITHIN_S = 30.0
MOST_AHEAD_S = 5.0
"""Seconds by which the fleet may be ahead of its budget, which is kept on average."""
SETTINGS = {
    "CORONET_POLL_INTERVAL_S": POLL_INTERVAL_S,
    "CORONET_MAINTENANCE_INTERVAL_S": 1,
    "CORONET_LEASE_TTL_S": LEASE_S,
    "CORONET_MAX_POLLS_PER_HOUR": WORKERS * 3600 / POLL_INTERVAL_S,
    "CORONET_POLLS_PER_HOUR_FOR_ONE_SUBSCRIBER": WORKERS * 3600 / POLL_INTERVAL_S,
    "CORONET_HOST_REQUESTS_PER_S": SITE_REQUESTS_PER_S,
    "CORONET_WEEKLY_RHYTHM": "false",
    "CORONET_CLUSTER_SECRET": "the fleet's",
}
AIMS: dict[str, object] = {"goal": "lite", "demand_factor": 10, "budget_polls_per_minute": BUDGET_PER_MINUTE}

PLAIN = [Feed(f"http://site{number}.example/feed", max(1, 6 - number)) for number in range(12)]
CROWD = [Feed(f"http://blog{number}.crowd.example/feed", 2) for number in range(6)]
"""These would be polled more often than their site allows."""
FEEDS = [*PLAIN, *CROWD]
SOFT_STATE = ("cn:{r}:*", "cn:{n:*", "cn:{q:*", "cn:{l:*")
"""Patterns of keys: the ring with its leases, inboxes, replies to requests, leases of partitions."""

_numbers = count()


class Traffic:
    """A fleet whose feeds get new entries all the time."""

    def __init__(self, fleet: PublicFleet) -> None:
        self.fleet = fleet
        self.published: dict[Feed, list[str]] = {feed: [] for feed in FEEDS}
        self._chance = random.Random(1)  # noqa: S311 - a workload
        self._publishing = asyncio.create_task(self._keep_publishing())

    async def publish(self, *feeds: Feed) -> None:
        for feed in feeds:
            title = f"News {next(_numbers)}"
            await self.fleet.publisher.publish(feed.url, title)
            self.published[feed].append(title)

    async def _keep_publishing(self) -> None:
        while True:
            await asyncio.sleep(0.3)
            await self.publish(self._chance.choice(FEEDS))

    async def stop(self) -> None:
        """Publish nothing more."""
        self._publishing.cancel()
        await asyncio.gather(self._publishing, return_exceptions=True)

    async def irregular_channels(self) -> dict[str, str]:
        """Return why the polling sets of plain feeds are not whole, by URL."""
        details, names = await asyncio.gather(self.fleet.channels(PLAIN), self.fleet.node_names())
        polls, now_s = defaultdict[str, list[tuple[float, str]]](list), time.time()
        for request in self.fleet.publisher.requests():
            polls[request.url].append((request.at_s, request.worker))
        found = {}
        for feed in PLAIN:
            why: dict[str, Any] | None = details[feed.url]["why"]
            if not why:
                found[feed.url] = details[feed.url]["polling_unknown"]
                continue
            members = {names.get(turn["node"], "a dead node") for turn in why["turns"]}
            since_s = now_s - 1.5 * why["interval_s"]
            polled_by = {worker for at_s, worker in polls[feed.url] if at_s >= since_s}
            nearest = sorted(names, key=lambda node: from_hex(node) ^ from_hex(feed.id))[: len(members)]
            if polled_by != members or {names[node] for node in nearest} != members:
                found[feed.url] = f"assigned to {members}, polled by {polled_by}"
        return found

    async def heal(self) -> None:
        """Wait until polling sets are whole."""
        began_s, irregular = time.monotonic(), {"": "unknown"}
        while irregular:
            irregular = await self.irregular_channels()
            # What was polled before the sets were whole is seen for one and a half intervals more.
            assert time.monotonic() - began_s < HEALED_WITHIN_S + 1.5 * 2 * POLL_INTERVAL_S, irregular
            await asyncio.sleep(0.2)

    async def verify(self) -> None:
        """Publish one more entry in every feed; verify the ledger and the budgets."""
        await self.stop()
        await self.publish(*FEEDS)
        with contextlib.suppress(AssertionError):  # the audit says it better
            await until(self._all_are_told, "all entries are told", within_s=30)
        assert await self.fleet.audit(self.published) == []
        requests = self.fleet.publisher.requests()
        crowd_s = [request.at_s for request in requests if request.host.endswith("crowd.example")]
        assert most_at_once(crowd_s, SITE_REQUESTS_PER_S) <= BURST
        budget_per_s = BUDGET_PER_MINUTE / 60
        assert most_at_once([request.at_s for request in requests], budget_per_s) <= MOST_AHEAD_S * budget_per_s

    async def _all_are_told(self) -> bool:
        return {title for titles in self.published.values() for title in titles} <= set(await self.fleet.told(FEEDS))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def redis(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrivateRedis]:
    async with PrivateRedis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, redis: PrivateRedis) -> AsyncIterator[PublicFleet]:
    scratch = tmp_path_factory.mktemp("fleet")
    async with public_fleet(scratch, redis.url, FEEDS, workers=WORKERS, **SETTINGS) as running:
        await running.set_policy(**AIMS, levels="2")
        await running.add(FEEDS)
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def traffic(fleet: PublicFleet) -> AsyncIterator[Traffic]:
    """Traffic on a fleet whose polling sets are whole."""
    live = Traffic(fleet)
    try:
        await live.heal()
        yield live
    finally:
        await live.stop()


async def test_workers_that_cannot_connect_to_each_other_apply_a_changed_policy(traffic: Traffic) -> None:
    fleet = traffic.fleet
    with fleet.unreachable("w0", "w1"):
        await fleet.set_policy(**{**AIMS, "goal": "fair"}, levels="2")
        await traffic.heal()
        await fleet.set_policy(**AIMS, levels="2")
        await traffic.heal()
    await traffic.verify()


async def test_workers_whose_ring_and_inboxes_are_lost_form_a_new_ring(traffic: Traffic, redis: PrivateRedis) -> None:
    lost = [key for pattern in SOFT_STATE for key in await traffic.fleet.store.redis.call("KEYS", pattern)]
    await traffic.fleet.store.redis.call("DEL", *lost)
    os.kill(redis.pid, signal.SIGKILL)
    await redis.stop()
    await redis.start()
    await traffic.heal()
    await traffic.verify()


async def test_polling_sets_recover_from_a_worker_frozen_for_three_leases(traffic: Traffic) -> None:
    worker = traffic.fleet.workers["w2"]
    worker.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(3 * LEASE_S)
    finally:
        worker.send_signal(signal.SIGCONT)
    await traffic.heal()
    await traffic.verify()


async def test_polling_sets_recover_from_a_redis_frozen_for_five_leases(traffic: Traffic, redis: PrivateRedis) -> None:
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(5 * LEASE_S)
    finally:
        os.kill(redis.pid, signal.SIGCONT)
    await traffic.heal()
    await traffic.verify()


async def test_polling_sets_recover_from_the_loss_of_half_of_the_fleet(traffic: Traffic) -> None:
    fleet = traffic.fleet
    victims = ("w0", "w3")
    for name in victims:
        await fleet.kill(name)
    try:
        await traffic.heal()
        await traffic.verify()
    finally:
        for name in victims:
            fleet.start_worker(name)
