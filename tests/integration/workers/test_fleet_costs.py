"""The table of what workers cost Redis, on which forecasts are based, beside a real worker at rest."""

import asyncio

import pytest

from service.settings import Settings
from service.simulate.fleet.costs import Activity, redis_costs
from service.store import Store
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_fleet_live import nodes_in_the_ring
from tests.support.redis_monitor import tally_commands

NODES = 4
MEASURED_S = 2.0
_TASKS = {
    "heartbeats": {"ring", "other"},
    "key groups": {"key groups"},
    "maintenance": {"policy", "registry", "directory", "inboxes"},
}
"""Tasks of the forecast, and those by keys that :mod:`tests.support.redis_monitor` tells apart."""


@pytest.fixture
def settings(clean_redis: str) -> Settings:
    return Settings(redis_url=clean_redis, nodes_per_worker=NODES, maintenance_interval_s=1.0, lease_ttl_s=2.0)


async def test_a_worker_sends_the_commands_of_the_table(
    store: Store, settings: Settings, start_worker: StartWorker
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, NODES)
    await asyncio.sleep(0.5)
    tally = await tally_commands(settings.redis_url, MEASURED_S)
    del tally.commands["registry", "SMEMBERS"]  # the listing after a change of the ring
    # On a busy machine, tasks run more rarely, by about the same factor.
    slowness = tally.commands["ring", "EVALSHA"] / (MEASURED_S * NODES * 4 / settings.lease_ttl_s)
    expected = redis_costs(
        Activity(0, 0, 0, 0, 0),
        nodes=NODES,
        channels=0,
        public_channels=0,
        lease_s=settings.lease_ttl_s,
        interval_s=settings.maintenance_interval_s,
    )
    found = tally.by_task()
    for task, names in _TASKS.items():
        measured = sum(found[name] for name in names)
        rest = set(expected) - set(_TASKS) if task == "maintenance" else set[str]()
        forecast = sum(expected[name].commands for name in {task, *rest}) * MEASURED_S
        assert 0.4 * slowness * forecast <= measured <= 1.3 * forecast, (task, slowness, tally.commands)
