"""Manual splits of recalled leaves, and how the shards operation shows them."""

from service.clash.key_groups import KeyGroup
from service.clash.move_steps import GiveKeyGroup, RecallGroup
from service.operations import shards
from service.settings import Settings
from service.store import Store
from service.store.subscriptions.keyspaces import run_move


async def test_a_recalled_leaf_is_shown_as_recalled_and_can_be_split(store: Store) -> None:
    whole = KeyGroup(0, 0, store.keyspaces.bits)
    home = store.keyspaces.map.keyspace_of(whole)
    await shards.split(store, whole.label)
    await shards.split(store, whole.left.label)
    await store.keyspaces.carry_out(RecallGroup(home, whole))
    away = store.keyspaces.map.keyspace_of(whole.right)
    under_way = (await shards.read_shards(store, Settings())).moves
    assert under_way == [f"recall of 1*: 1* goes from {away} to {home} (planned)"]
    (table,) = await store.keyspaces.tables([home])
    assert table.move is not None
    async for _ in run_move(store.keyspaces, GiveKeyGroup(table.move)):
        pass
    seen = await shards.read_shards(store, Settings())
    assert {(shard.keyspace, shard.standing) for shard in seen.shards if shard.label == "1*"} == {(home, "recalled")}
    assert "recalled" in shards.as_text(seen)
    told = await shards.split(store, "1*")
    assert told.startswith("Split 1*: 10* with 0 subscriptions in keyspace")
    labels = {shard.label for shard in (await shards.read_shards(store, Settings())).shards}
    assert {"10*", "11*"} <= labels
