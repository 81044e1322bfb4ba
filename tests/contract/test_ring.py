"""The ring: leases on Redis's clock, joins by compare-and-set."""

import asyncio
from collections.abc import Sequence

import pytest

from service.errors import LeaseLost, StoreUnavailable
from service.overlay.ring import balanced_id
from service.settings import Settings
from service.store import Store, connect
from service.store.client import keys
from service.store.coordination.requests import InboxMessage
from tests.support.waiting import until


async def test_nodes_that_join_all_at_once_take_different_even_ids(store: Store) -> None:
    joined = await asyncio.gather(*(store.ring.join(f"w{i}", "", 60, balanced_id) for i in range(8)))
    view = await store.ring.nodes()
    assert [node.id[0] for node in view] == list("02468ace")
    assert len({node.epoch for node in joined}) == 8
    assert {node.name for node in view} == {f"w{i}" for i in range(8)}


async def test_a_heartbeat_returns_the_ring_only_if_it_changed(store: Store) -> None:
    me = await store.ring.join("w", "", 60, balanced_id)
    first = await store.ring.heartbeat(me, 60, -1)
    assert first.ring is not None
    assert first.ring.nodes == (me,)
    again = await store.ring.heartbeat(me, 60, first.ring.version)
    assert again.ring is None
    await store.ring.join("other", "", 60, balanced_id)
    news = await store.ring.heartbeat(me, 60, first.ring.version)
    assert news.ring is not None
    assert len(news.ring.nodes) == 2


async def test_a_node_without_heartbeats_expires_and_must_join_again(store: Store) -> None:
    alive = await store.ring.join("alive", "", 60, balanced_id)
    dead = await store.ring.join("dead", "", 0.05, balanced_id)
    expired: Sequence[str] = ()
    async with asyncio.timeout(5):
        while not expired:
            beat = await store.ring.heartbeat(alive, 60, -1)
            expired = beat.expired
    assert expired == (dead.id,)
    assert beat.ring is not None
    assert beat.ring.nodes == (alive,)
    with pytest.raises(LeaseLost):
        await store.ring.heartbeat(dead, 60, -1)


async def test_a_node_without_a_lease_is_removed(store: Store) -> None:
    alive = await store.ring.join("alive", "", 60, balanced_id)
    ghosts = [await store.ring.join(f"ghost {number}", "", 60, balanced_id) for number in range(2)]
    before = await store.ring.heartbeat(alive, 60, -1)
    assert before.ring is not None
    await store.redis.call("ZREM", keys.RING_LEASES, *(ghost.id for ghost in ghosts))
    beat = await store.ring.heartbeat(alive, 60, before.ring.version)
    assert beat.ring is not None
    assert (beat.ring.nodes, set(beat.expired)) == ((alive,), {ghost.id for ghost in ghosts})
    for ghost in ghosts:
        with pytest.raises(LeaseLost):
            await store.ring.heartbeat(ghost, 60, -1)


async def test_a_lease_without_a_node_is_removed(store: Store) -> None:
    alive = await store.ring.join("alive", "", 60, balanced_id)
    lost = await store.ring.join("lost", "", 60, balanced_id)
    await store.redis.call("HDEL", keys.RING_NODES, lost.id)
    beat = await store.ring.heartbeat(alive, 60, -1)
    assert beat.ring is not None
    assert (beat.ring.nodes, beat.expired) == ((alive,), (lost.id,))
    assert await store.redis.call("ZCARD", keys.RING_LEASES) == 1


async def test_an_old_epoch_does_not_affect_a_successor_with_the_same_id(store: Store) -> None:
    zombie = await store.ring.join("zombie", "", 60, balanced_id)
    await store.ring.leave(zombie)
    successor = await store.ring.join("successor", "", 60, balanced_id)
    assert successor.id == zombie.id
    with pytest.raises(LeaseLost):
        await store.ring.heartbeat(zombie, 60, -1)
    await store.ring.leave(zombie)
    assert await store.ring.nodes() == [successor]


async def test_a_node_loses_its_lease_if_another_takes_its_id_in_a_ring_that_lost_everything(store: Store) -> None:
    old = await store.ring.join("old", "", 60, balanced_id)
    await store.redis.call("DEL", keys.RING_NODES, keys.RING_LEASES, keys.RING_VERSION, keys.RING_EPOCH)
    new = await store.ring.join("new", "", 60, balanced_id)
    assert new.id == old.id
    with pytest.raises(LeaseLost):
        await store.ring.heartbeat(old, 60, -1)
    await store.ring.leave(old)
    assert await store.ring.nodes() == [new]


async def test_inbox_messages_are_trimmed_after_reading_and_expire(store: Store) -> None:
    node, letters = "a" * 40, [InboxMessage("peer", "", b"one"), InboxMessage("ask", "", b"two")]
    await store.node_inboxes.send([(node, letter) for letter in letters])
    assert 0 < await store.redis.call("TTL", keys.inbox(node)) <= 3600
    read, place = await store.node_inboxes.read(node, "0")
    assert read == letters
    await store.node_inboxes.send([(node, InboxMessage("peer", "", b"three"))])
    await store.node_inboxes.trim(node, place)
    assert await store.redis.call("XLEN", keys.inbox(node)) <= 2
    assert [letter.payload for letter in (await store.node_inboxes.read(node, place))[0]] == [b"three"]


async def test_a_closed_store_opens_no_connection_for_late_callers(store: Store) -> None:
    await store.ping()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.ping()
    with pytest.raises(StoreUnavailable):
        await store.redis.call_many([("GET", "a"), ("GET", "b")])


async def test_commands_in_progress_at_close_open_no_connection(store: Store, store_url: str) -> None:
    async def others() -> set[bytes]:
        listed: bytes = await store.redis.call("CLIENT", "LIST")
        return {line.split()[0] for line in listed.splitlines()} - ours

    async def none_left() -> bool:
        return not await others()

    ours: set[bytes] = set()
    ours = await others()
    closing = await connect(Settings(redis_url=store_url))
    under_way = [asyncio.create_task(closing.redis.call("BLPOP", "nothing", 4)) for _ in range(3)]
    await until(others, "they have asked")
    under_way += [asyncio.create_task(closing.redis.call("BLPOP", "nothing", 4)) for _ in range(3)]
    await asyncio.sleep(0)
    await closing.close()
    answers = await asyncio.gather(*under_way, return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    await until(none_left, "nothing was opened again")
