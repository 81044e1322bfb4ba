"""No publisher receives more requests than its budget, whatever happens to the nodes (guarantee I9)."""

import contextlib
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from service.settings import Settings
from service.store import open_store
from tests.support.channels import make_channel
from tests.support.internet import Internet, Zone, internet
from tests.support.netns import CORONET, namespace
from tests.support.polling_audit import most_at_once
from tests.support.waiting import until, until_so
from workers.polling.politeness import BURST

pytestmark = pytest.mark.faults

WORKERS = 8
REQUESTS_PER_S = 4.0
HOSTS = ("www.news.example", "blog.news.example", "news.example")
ZONE: Zone = {host: [["93.184.216.34"]] for host in HOSTS}
HAMMERING = {
    "CORONET_POLL_INTERVAL_S": "1",
    "CORONET_MAX_POLLS_PER_HOUR": "1000000",
    "CORONET_POLLS_PER_HOUR_FOR_ONE_SUBSCRIBER": "1000000",
    "CORONET_HOST_REQUESTS_PER_S": str(REQUESTS_PER_S),
    "CORONET_LEASE_TTL_S": "2",
    "CORONET_MAINTENANCE_INTERVAL_S": "1",
}


def arrivals_s(publisher: Internet) -> list[float]:
    return [each.at_s for each in publisher.seen() if each.path]


@pytest.mark.timeout(120)
async def test_eight_nodes_keep_a_sites_budget_while_one_is_killed_and_one_added(
    tmp_path: Path, clean_redis: str
) -> None:
    async with contextlib.AsyncExitStack() as running:
        place = running.enter_context(namespace(tmp_path))
        publisher = running.enter_context(internet(place, ZONE, tmp_path))
        store = open_store(Settings(redis_url=clean_redis))
        running.push_async_callback(store.close)

        def start_worker() -> "contextlib.AbstractContextManager[subprocess.Popen[bytes]]":
            return place.running(CORONET, "worker", CORONET_REDIS_URL=clean_redis, **HAMMERING)

        def ring_of(size: int) -> Callable[[], Awaitable[bool]]:
            async def look() -> bool:
                return len(await store.ring.nodes()) == size

            return look

        async def hammer(requests: int) -> None:
            wanted = len(arrivals_s(publisher)) + requests
            await until_so(lambda: len(arrivals_s(publisher)) >= wanted, f"{requests} requests more")

        nodes = [running.enter_context(start_worker()) for _ in range(WORKERS)]
        await until(ring_of(WORKERS), "all workers have joined", within_s=40)
        for number in range(8 * len(HOSTS)):
            await make_channel(store, f"http://{HOSTS[number % len(HOSTS)]}/{number}", listed=True)
        await hammer(12)
        nodes[0].kill()
        await until(ring_of(WORKERS - 1), "the others have noticed")
        running.enter_context(start_worker())
        await until(ring_of(WORKERS), "another has joined")
        await hammer(12)
        times_s = arrivals_s(publisher)
        assert most_at_once(times_s, REQUESTS_PER_S) <= BURST
        assert len(times_s) > 0.25 * REQUESTS_PER_S * (times_s[-1] - times_s[0]), "they did not hammer"
