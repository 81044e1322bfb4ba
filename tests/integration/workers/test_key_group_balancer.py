"""The key group balancer: hot key groups split, cold ones merge, and successors complete moves."""

import asyncio

import pytest
import pytest_asyncio

from service.asyncio_tasks import BackgroundTasks
from service.clash.key_groups import KeyGroup
from service.clash.move_steps import Outcome, SplitGroup, Step
from service.clash.server_table import GroupState, Move
from service.clash.split_merge_policy import HalfLives, LoadLimits
from service.model import ChannelId, NodeInfo
from service.overlay.ring import RingView
from service.store import LAYOUT, Store
from service.store.client import keys
from service.store.subscriptions.keyspace_store import KeyspaceStore, run_move
from tests.support.channels import make_channel
from tests.support.waiting import until_so
from workers.key_group_balancer import KeyGroupBalancer

PEOPLE = 300
UIDS = [keys.user_id(f"user{n}@localhost") for n in range(PEOPLE)]
LIMITS = LoadLimits(capacity=20.0)
# In the half of the keys that a first split moves.
URL = next(
    f"https://{name}/feed"
    for name in (f"site{n}.example" for n in range(100))
    if LAYOUT.channel_group(name, "").key >> LAYOUT.bits - 1
)
ONE, OTHER = "11" * 20, "ee" * 20


class Died(Exception):
    """Stands for a killed process."""


class Dying(KeyspaceStore):
    """Keyspaces of a balancer that dies before its last step, or after it but before the reply."""

    def __init__(self, store: Store, survives: int, *, done: bool) -> None:
        super().__init__(store.redis, store.keyspaces.map, store.keyspaces.bits)
        self.left, self._done = survives, done

    async def carry_out(self, step: Step) -> Outcome:
        if self.left == 0 and self._done:
            await super().carry_out(step)
        if self.left == 0:
            raise Died
        self.left -= 1
        return await super().carry_out(step)


class BalancedNode:
    """The balancer of the only node of a ring."""

    def __init__(self, store: Store, limits: LoadLimits, node: str = ONE) -> None:
        self.tasks = BackgroundTasks()
        self._balancer = KeyGroupBalancer(node, store, limits, interval_s=10.0, tasks=self.tasks)
        self._balancer.on_ring_changed(RingView(1, (NodeInfo(node, 1, node[:4], 0.0, ""),)))

    async def balance(self, fleet_s: float) -> None:
        """Balance once, and wait until all moves have ended."""
        await self._balancer.balance(fleet_s)
        await until_so(lambda: not self._balancer._moving, "no move is under way")


@pytest_asyncio.fixture
async def channel(store: Store) -> ChannelId:
    cid = (await make_channel(store, URL)).id
    assert all(await asyncio.gather(*(store.channel_index.add(cid, UIDS[n], n + 1) for n in range(PEOPLE))))
    return cid


async def told(store: Store, cid: ChannelId) -> list[tuple[str, int]]:
    """The users and subscription numbers in the order of a fan-out."""
    found, cursor = await store.channel_index.page(cid, "", 100)
    while cursor:
        entries, cursor = await store.channel_index.page(cid, cursor, 100)
        found += entries
    return sorted(found)


async def leaves(store: Store) -> dict[KeyGroup, int]:
    """All active key groups with their keyspaces."""
    tables = await store.keyspaces.tables(range(store.keyspaces.map.count))
    return {
        group: table.keyspace
        for table in tables
        for group, entry in table.entries.items()
        if entry.state is GroupState.ACTIVE
    }


async def test_a_hot_channel_is_split_over_keyspaces_and_merged_when_cold(store: Store, channel: ChannelId) -> None:
    """300 deliveries in 10 s exceed the 18 per second of one keyspace; every subscriber is there once all the time."""
    everybody = [(uid, n + 1) for n, uid in enumerate(UIDS)]
    node_ = BalancedNode(store, LIMITS)
    for look in range(6):
        assert await told(store, channel) == sorted(everybody)
        await node_.balance(1_000.0 + 10 * look)
    hot = await leaves(store)
    assert len(set(hot.values())) > 1
    assert await told(store, channel) == sorted(everybody)
    assert await store.channel_index.count([channel]) == [PEOPLE]
    tables = [table for table in await store.keyspaces.tables(range(256)) if table.entries]
    weighed = await store.key_group_loads.weigh(tables, 1_050.0, HalfLives.for_interval(10.0))
    assert all(sum(own.values()) <= 18.0 for own in weighed.loads.values())
    intervals = iter(range(60))
    while len(await leaves(store)) > 1:
        await node_.balance(1_600.0 + 10 * next(intervals))
    assert await told(store, channel) == sorted(everybody)
    await node_.tasks.cancel()


async def split(store: Store, group: KeyGroup) -> None:
    async for _ in run_move(store.keyspaces, SplitGroup((await leaves(store))[group], group)):
        pass


async def moves(store: Store) -> list[Move]:
    tables = await store.keyspaces.tables(range(store.keyspaces.map.count))
    return [table.move for table in tables if table.move is not None]


@pytest.mark.parametrize(
    "done", [pytest.param(False, id="before", marks=pytest.mark.storms), pytest.param(True, id="after")]
)
@pytest.mark.parametrize("kind", ["split", "merge"])
async def test_a_successor_completes_a_move_interrupted_at_any_step(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: str, *, done: bool
) -> None:
    """Users subscribe, unsubscribe and receive entries between the two balancers."""
    monkeypatch.setattr("service.store.subscriptions.keyspace_store.RECORDS_PER_STEP", 16)
    asyncio.get_running_loop().set_debug(False)  # it would take most of the time
    cid = (await make_channel(store, URL)).id
    expected = {UIDS[n]: n + 1 for n in range(40)}
    await asyncio.gather(*(store.channel_index.add(cid, uid, seq) for uid, seq in expected.items()))
    newcomers = iter(UIDS[40:])
    died = True
    survives = 0
    cold, whole = LoadLimits(1e9), KeyGroup(0, 0, store.keyspaces.bits)
    while died:
        (root,) = (await leaves(store)).values()
        doomed = Store(store.redis)
        if kind == "split":
            await store.keyspaces.record_deliveries(root, whole, 20_000)
        else:
            await split(store, whole)
        doomed.keyspaces = Dying(store, survives, done=done)
        mortal = BalancedNode(doomed, cold if kind == "merge" else LoadLimits(400.0))
        await mortal.balance(1_000.0 * (survives + 1))
        died = doomed.keyspaces.left == 0
        gone, come = next(iter(expected)), next(newcomers)
        await store.channel_index.remove(cid, [(gone, expected.pop(gone) + 1)])
        expected[come] = 7
        assert await store.channel_index.add(cid, come, 7)
        assert await told(store, cid) == sorted(expected.items())
        successor = BalancedNode(store, cold, OTHER)
        await successor.balance(1_000.0 * (survives + 1) + 500)
        assert await moves(store) == []
        assert await told(store, cid) == sorted(expected.items())
        await successor.balance(1_000.0 * (survives + 1) + 900)
        assert len(await leaves(store)) == 1
        assert await told(store, cid) == sorted(expected.items())
        assert await store.channel_index.count([cid]) == [len(expected)]
        survives += 1
    assert survives > 10
