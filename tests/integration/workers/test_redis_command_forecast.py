"""The table of what workers cost Redis, on which forecasts are based, beside a real worker at rest."""

import asyncio

import pytest

from service.settings import Settings
from service.simulate.fleet.costs import HEARTBEAT, KEYSPACE, MAINTENANCE, MATRIX_UPKEEP
from service.store import Store
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_worker_fleet import nodes_in_the_ring
from tests.support.redis_monitor import tally_commands

NODES = 4


@pytest.fixture
def settings(clean_redis: str) -> Settings:
    return Settings(redis_url=clean_redis, nodes_per_worker=NODES, maintenance_interval_s=0.5)


async def test_a_worker_sends_the_forecast_number_of_redis_commands(
    store: Store, settings: Settings, start_worker: StartWorker
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, NODES)
    await asyncio.sleep(0.5)
    tally = await tally_commands(settings.redis_url, 2.0)
    heartbeats, listings = tally.commands["ring", "EVALSHA"], tally.commands["registry", "ZRANGE"]
    measured_keyspaces = tally.commands["key groups", "HGETALL"]
    del tally.commands["registry", "SMEMBERS"]  # the listing after a change of the ring
    found = tally.by_task()
    # The script also asks for the time, which has no key.
    assert found["ring"] + heartbeats == pytest.approx(HEARTBEAT.commands * heartbeats, rel=0.1)
    maintenance = found["policy"] + found["registry"] + found["directory"]
    assert maintenance == pytest.approx(MAINTENANCE.commands * listings, rel=0.4)
    upkeeps = tally.commands["matrices", "HGETALL"] / 4
    assert found["matrices"] + 2 * upkeeps == pytest.approx(MATRIX_UPKEEP.commands * upkeeps, rel=0.25)
    assert found["key groups"] == pytest.approx(KEYSPACE.commands * measured_keyspaces, rel=0.25)
