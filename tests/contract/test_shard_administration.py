"""Manual splits and merges, and how the shards operation shows them."""

from service.clash.key_groups import KeyGroup
from service.clash.move_steps import GiveKeyGroup, MergeGroup
from service.operations import shard_administration
from service.settings import Settings
from service.store import Store
from service.store.subscriptions.keyspace_store import run_move


async def test_a_move_in_progress_and_its_result_are_shown(store: Store) -> None:
    whole = KeyGroup(0, 0, store.keyspaces.bits)
    home, away = (store.keyspaces.map.keyspace_of(group) for group in (whole, whole.right))
    told = await shard_administration.split(store, whole.label)
    assert told.startswith("Split *: 0* with 0 subscriptions in keyspace")
    await store.keyspaces.carry_out(MergeGroup(home, whole))
    under_way = (await shard_administration.read_shards(store, Settings())).moves
    assert under_way == [f"merge of *: 1* goes from {away} to {home} (planned)"]
    (table,) = await store.keyspaces.tables([home])
    assert table.move is not None
    async for _ in run_move(store.keyspaces, GiveKeyGroup(table.move)):
        pass
    (shard,) = (await shard_administration.read_shards(store, Settings())).shards
    assert (shard.label, shard.keyspace, shard.standing) == ("*", home, "active")
