"""Polls of real workers, as publishers at public addresses and the console's API show them.

``tests/live/corona.py`` measures the same on a larger scale, and more.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.embedded.private_redis import PrivateRedis
from tests.support.polling_audit import Phase, irregular_gaps, planned_gaps_s, polls_by_url, wedge
from tests.support.public_fleet import Feed, PublicFleet, public_fleet
from tests.support.public_publisher import HOURLY, Request
from tests.support.waiting import until_so

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

WORKERS = 4
POLL_INTERVAL_S = 12.0
MAINTENANCE_S = 2.0
REQUESTS_PER_S = 1.0
SETTINGS = {
    "CORONET_HOST_REQUESTS_PER_S": REQUESTS_PER_S,
    "CORONET_POLL_INTERVAL_S": POLL_INTERVAL_S,
    "CORONET_MAINTENANCE_INTERVAL_S": MAINTENANCE_S,
    "CORONET_MAX_POLLS_PER_HOUR": WORKERS * 3600 / POLL_INTERVAL_S,
    "CORONET_POLLS_PER_HOUR_FOR_ONE_SUBSCRIBER": WORKERS * 3600 / POLL_INTERVAL_S,
    "CORONET_WEEKLY_RHYTHM": "false",
}
AIMS: dict[str, object] = {"goal": "lite", "demand_factor": 10, "budget_polls_per_minute": 240.0}

PLAIN = [Feed(f"http://site{number}.example/feed", max(1, 100 // (number + 1))) for number in range(20)]
CROWD = [Feed(f"http://blog{number}.crowd.example/feed", 2) for number in range(10)]
ASKS_FOR_HOURLY = Feed(f"http://hourly.example{HOURLY}", 100)
FEEDS = [*PLAIN, *CROWD, ASKS_FOR_HOURLY]

SKIPPED, DOUBLED = 1.75, 0.25
"""Looser than in the measurement: the machine may be busy with other tests."""
RETRY_AFTER_S = 30
"""No pause of a site is shorter."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PublicFleet]:
    """Workers that poll all feeds."""
    scratch = tmp_path_factory.mktemp("fleet")
    async with (
        PrivateRedis(scratch / "redis") as redis,
        public_fleet(scratch, redis.url, FEEDS, workers=WORKERS, **SETTINGS) as running,
    ):
        await running.set_policy(**AIMS)
        await running.add(FEEDS)
        await running.settled(PLAIN, every_s=MAINTENANCE_S)
        yield running


async def phase(fleet: PublicFleet, seconds: float, **aims: object) -> Phase:
    begin_s = await fleet.set_policy(**AIMS, **aims)
    details = await fleet.settled(PLAIN, every_s=MAINTENANCE_S)
    settled_s = time.time()
    await asyncio.sleep(seconds)
    return Phase(begin_s, settled_s, time.time(), planned_gaps_s(details))


async def test_a_switch_of_levels_changes_polling_sets_and_skips_and_doubles_no_poll(fleet: PublicFleet) -> None:
    before = await phase(fleet, POLL_INTERVAL_S / 2)
    leveled = await phase(fleet, POLL_INTERVAL_S, levels="2")
    details, nodes = await fleet.channels(FEEDS), await fleet.node_names()
    after = await phase(fleet, POLL_INTERVAL_S / 2)
    sizes = set()
    for feed in FEEDS:
        members = {node["id"] for node in details[feed.url]["polling_set"]}
        assert members == wedge(nodes, feed.id, len(members)), feed.url
        sizes.add(len(members))
    assert sizes == {1, 2, 4}
    polls = polls_by_url(fleet.publisher.requests())
    plain = [feed.url for feed in PLAIN]
    irregular = irregular_gaps(polls, [before, leveled, after], plain, skipped_from=SKIPPED, doubled_to=DOUBLED)
    assert irregular == ([], [])


async def test_a_feed_with_an_hourly_polling_hint_is_planned_hourly(fleet: PublicFleet) -> None:
    (detail,) = (await fleet.settled([ASKS_FOR_HOURLY], every_s=MAINTENANCE_S)).values()
    assert planned_gaps_s({"": detail})[""] == pytest.approx(3600, rel=0.05)
    assert detail["why"]["bound"] == "publisher"


async def test_a_refusal_with_retry_after_pauses_all_channels_of_the_site(fleet: PublicFleet) -> None:
    seen = len(fleet.publisher.requests())
    for feed in CROWD:
        await fleet.publisher.answer(feed.url.split("/")[2], 429, RETRY_AFTER_S)

    def crowd() -> list[Request]:
        return [request for request in fleet.publisher.requests()[seen:] if request.host.endswith("crowd.example")]

    def refused() -> list[Request]:
        return [request for request in crowd() if request.status == 429]

    await until_so(refused, "a poll is refused", within_s=2 * POLL_INTERVAL_S)
    until_s = refused()[0].at_s + RETRY_AFTER_S
    await asyncio.sleep(2)
    for feed in CROWD:
        await fleet.publisher.answer(feed.url.split("/")[2], 200)
    # After a pause, the site's bucket is empty and its rate begins at a sixteenth.
    await until_so(
        lambda: any(request.at_s >= until_s for request in crowd()),
        "the site is polled again",
        within_s=RETRY_AFTER_S + 16 / REQUESTS_PER_S + 3 * POLL_INTERVAL_S,
    )
    assert sum(refused()[0].at_s <= request.at_s < until_s for request in crowd()) <= 2
