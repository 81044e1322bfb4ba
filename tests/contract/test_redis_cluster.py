"""A Redis Cluster is detected without configuration, and a failover loses no acknowledged write."""

import asyncio
import contextlib
from itertools import count
from pathlib import Path

import pytest

from service.errors import StoreUnavailable
from service.feeds.entries.version_parts import VersionParts
from service.operations import shard_administration
from service.settings import Settings
from service.store import Store, open_store
from service.store.client import keys
from service.store.client.cluster_routing import slot_of
from service.store.client.data_loss_guard import READ_IDENTITY
from service.store.client.redis_client import RedisClient
from service.store.coordination.worker_inboxes import InboxMessage
from tests.support.channels import make_channel
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_nodes import on_every_node
from tests.support.waiting import until, until_so

NAMES = [f"name:{number}" for number in range(300)]
ALICE = "alice@localhost"


@pytest.fixture
def settings(clean_cluster: RedisCluster) -> Settings:
    return Settings(redis_url=clean_cluster.url)


async def test_the_url_of_one_node_is_enough_and_commands_find_their_nodes(store: Store) -> None:
    """Replies belong to their commands in any order, alone and together."""
    assert [await store.redis.call("SET", name, name) for name in NAMES[:20]] == [True] * 20
    assert await store.redis.call_many([("SET", name, name) for name in NAMES]) == [True] * len(NAMES)
    held = await store.redis.call_many([("GET", name) for name in reversed(NAMES)])
    assert held == [name.encode() for name in reversed(NAMES)]
    assert all(size > len(NAMES) / 6 for size in await on_every_node(store, "DBSIZE"))


async def test_a_pipeline_can_be_the_first_request_to_a_cluster(clean_cluster: RedisCluster) -> None:
    link = RedisClient(Settings(redis_url=clean_cluster.url))
    assert await link.call_many_once([("INCR", name) for name in NAMES]) == [1] * len(NAMES)
    assert await link.call_many([("GET", name) for name in NAMES]) == [b"1"] * len(NAMES)
    await link.close()


async def test_a_subscription_and_delivery_work_across_slots(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    assert await store.channel_index.count([channel.id]) == [1]
    uid = keys.user_id(ALICE)
    assert await store.outbox.enqueue([uid], channel.id, 2, 5.0, VersionParts()) == []
    (batch,) = (await store.outbox.claim([uid], 10, 6.0)).values()
    assert [(item.channel, item.version) for item in batch.items] == [(channel.id, 2)]


async def test_a_blocking_reader_is_woken(store: Store) -> None:
    nodes = [f"{number:02x}" * 20 for number in range(6)]
    assert len({slot_of(("XLEN", keys.inbox(node))) for node in nodes}) == len(nodes)
    reading = [asyncio.create_task(store.node_inboxes.read(node, "0")) for node in nodes]
    await store.node_inboxes.send([(node, InboxMessage("ask", "", node.encode())) for node in nodes])
    assert [letters[0].payload for letters, _ in await asyncio.gather(*reading)] == [node.encode() for node in nodes]


async def test_commands_follow_a_slot_that_is_moving(store: Store, clean_cluster: RedisCluster) -> None:
    """Half of the slot's keys have been moved (ASK), then all of them (MOVED); other slots are not affected."""
    here, there = (f"{name}{{moving}}" for name in ("here", "there"))
    await store.redis.call_many([("SET", here, "1"), ("SET", there, "1")])
    slot = slot_of(("GET", here))
    assert slot is not None
    donor = (store.redis.node_of(("GET", here)) or ("", 0))[1]
    taker = next(port for port in await clean_cluster.masters() if port != donor)
    ids = {port: str(await clean_cluster.ask(port, "CLUSTER", "MYID")) for port in (donor, taker)}
    await clean_cluster.ask(taker, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[donor])
    await clean_cluster.ask(donor, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[taker])
    await clean_cluster.ask(donor, "MIGRATE", "127.0.0.1", taker, there, 0, 5000)
    assert await store.redis.call_many([("INCR", here), ("INCR", there), ("INCR", "elsewhere")]) == [2, 2, 1]
    assert await store.redis.call("INCR", there) == 3
    await clean_cluster.ask(donor, "MIGRATE", "127.0.0.1", taker, here, 0, 5000)
    for port in (taker, donor):
        await clean_cluster.ask(port, "CLUSTER", "SETSLOT", slot, "NODE", ids[taker])
    assert await store.redis.call("INCR", here) == 3
    assert await store.redis.call_many_once([("INCR", here), ("INCR", there)]) == [4, 4]


async def _has_identity(store: Store) -> bool:
    with contextlib.suppress(StoreUnavailable):
        await store.identity.verify()
        return True
    return False


async def _count_up(link: RedisClient, name: str, acknowledged: dict[str, int]) -> None:
    for number in count(1):
        with contextlib.suppress(StoreUnavailable):
            await link.call("SET", name, number)
            acknowledged[name] = number


async def test_no_acknowledged_write_is_lost_when_a_master_fails(tmp_path: Path) -> None:
    """Writers continue when the replica has taken over; new clients ask other nodes while the first is unavailable.

    The store is not refused if the node that has the store's identity fails.
    """
    async with RedisCluster(tmp_path) as cluster:
        link = RedisClient(Settings(redis_url=cluster.urls))
        acknowledged = dict.fromkeys(NAMES[:30], 0)
        writers = [asyncio.create_task(_count_up(link, name, acknowledged)) for name in acknowledged]
        await until_so(lambda: min(acknowledged.values()) > 20, "all write")
        lost = cluster.ports[0]
        await cluster.kill(lost)
        at_death = dict(acknowledged)
        await until_so(lambda: all(acknowledged[name] > at_death[name] + 20 for name in at_death), "all write on")
        for writer in writers:
            writer.cancel()
        await asyncio.wait(writers)
        late = open_store(Settings(redis_url=cluster.urls))
        held = await late.redis.call_many([("GET", name) for name in acknowledged])
        assert all(int(value) >= number for value, number in zip(held, acknowledged.values(), strict=True))
        assert lost not in await cluster.masters()
        await late.identity.refresh()
        await late.redis.call("HINCRBY", keys.STORE_IDENTITY, "counter", 100)
        await late.identity.refresh()
        owner = late.redis.node_of(READ_IDENTITY)
        assert owner is not None
        await cluster.kill(owner[1])
        await until(lambda: _has_identity(late), "a replica has the identity")
        await late.ping()
        assert late.redis.node_of(READ_IDENTITY) not in (None, owner)
        await late.close()
        await link.close()


async def test_a_cluster_without_replies_is_unavailable(unused_tcp_port: int) -> None:
    link = RedisClient(Settings(redis_url=f"redis://127.0.0.1:{unused_tcp_port}, redis://127.0.0.1:{unused_tcp_port}"))
    for asked in (link.call("GET", "a"), link.call_many([("GET", "a")]), link.call_many_once([("SET", "a", "b")])):
        with pytest.raises(StoreUnavailable):
            await asked
    await link.close()


async def test_shards_show_the_keyspaces_of_each_redis_node(store: Store, clean_cluster: RedisCluster) -> None:
    channel = await make_channel(store)
    for number in range(20):
        await store.subscriptions.subscribe(f"person{number}@example.org", channel.id)
    await shard_administration.split(store, "*")
    found = await shard_administration.read_shards(store, Settings())
    held = [(node.address, keyspace) for node in found.redis_nodes for keyspace in node.keyspaces]
    assert sorted(keyspace for _, keyspace in held) == sorted(
        shard.keyspace for shard in found.shards if shard.standing != "split"
    )
    assert sum(node.subscriptions for node in found.redis_nodes) == 20
    assert {int(address.rpartition(":")[2]) for address, _ in held} <= set(await clean_cluster.masters())
