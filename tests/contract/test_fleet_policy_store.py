"""The fleet policy and the update statistics of channels are available to the next node."""

import msgspec

from service.corona.fleet_policy import FleetObjective, Goal
from service.corona.update_rates import UpdateEstimate, UpdateHistory
from service.model import Change, Delta, Entry
from service.store import Store
from service.store.channels.channel_records import Snapshot
from service.store.client import keys
from tests.support.channels import SNAPSHOT, make_channel

AIMS = FleetObjective(goal=Goal.FAIR, budget_polls_per_minute=30.0, longest_wait_s=600.0)


async def test_the_last_set_policy_applies(store: Store) -> None:
    assert await store.fleet_policy.get() is None
    for aims in (FleetObjective(), AIMS):
        await store.fleet_policy.set(aims)
        assert await store.fleet_policy.get() == aims


async def test_a_saved_policy_contains_values_that_equal_the_defaults(store: Store) -> None:
    """A later change of a default does not change a saved policy."""
    await store.fleet_policy.set(FleetObjective())
    saved = msgspec.json.decode(await store.redis.call("GET", keys.FLEET_POLICY))
    assert saved.keys() == set(FleetObjective.__struct_fields__)


async def test_a_new_owner_reads_the_former_owners_statistics(store: Store) -> None:
    channel = await make_channel(store)
    (state,) = await store.channels.adopt([channel.id], "a" * 40)
    assert state is not None
    assert state.updates == UpdateHistory(since_s=state.channel.created_s)
    learnt = UpdateHistory(UpdateEstimate(4.0, 3600.0, 5.0), 1e9)
    delta = Delta(channel.id, state.channel.version, 0, 1.0, (Change("addition", Entry("key", "Title")),))
    snapshot = Snapshot(SNAPSHOT.validators, b"", "", "", updates=learnt)
    await store.channels.publish(delta, snapshot, state.epoch, silent=False)
    (after,) = await store.channels.adopt([channel.id], "b" * 40)
    assert after is not None
    assert after.updates == learnt
