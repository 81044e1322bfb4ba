"""The ring: leases on Redis's clock, joins by compare-and-set."""

import asyncio
import contextlib
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest

from service.errors import LeaseLost, StoreUnavailable
from service.model import NodeInfo
from service.overlay.ring import balanced_id
from service.settings import Settings
from service.store import Store, open_store
from service.store.client import keys
from service.store.client.node_connections import Value
from service.store.client.redis_client import RedisClient
from service.store.coordination.worker_inboxes import InboxMessage
from service.store.coordination.worker_leases import Ring
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
    await store.redis.call("DEL", keys.RING_NODES, keys.RING_LEASES, keys.RING_CHANGES)
    new = await store.ring.join("new", "", 60, balanced_id)
    assert new.id == old.id
    with pytest.raises(LeaseLost):
        await store.ring.heartbeat(old, 60, -1)
    await store.ring.leave(old)
    assert await store.ring.nodes() == [new]


class _Reader:
    """A process that follows the ring; ``seen`` are the nodes in each reply, and every reply can be lost."""

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis
        self.ring = Ring(cast("RedisClient", self))
        self.loses_replies = False
        self.seen: list[int] = []

    async def run_urgent_script(self, name: str, of: Sequence[str], *arguments: Value) -> Any:
        reply = await self._redis.run_urgent_script(name, of, *arguments)
        self.seen.append(len(reply[4]) // 2)
        if self.loses_replies:
            raise StoreUnavailable("lost")
        return reply


@pytest.mark.parametrize("seed", range(4))
async def test_a_ring_updated_by_its_log_equals_the_whole_ring(store: Store, seed: int) -> None:
    """Whatever joins, leaves or expires, several nodes at once, and whichever replies are lost."""
    random, nodes = Random(seed), list[NodeInfo]()  # noqa: S311 - repeatable, not secret
    readers = [_Reader(store.redis) for _ in range(3)]
    for _ in range(60):
        joins = random.choice((0, 1, 1, 4))
        nodes += await asyncio.gather(*(store.ring.join("w", "", 60, balanced_id) for _ in range(joins)))
        random.shuffle(nodes)
        match random.randrange(4):
            case 0 if nodes:
                await store.ring.leave(nodes.pop())
            case 1:
                gone, nodes = nodes[:3], nodes[3:]
                await store.ring.leave(*gone)
            case 2 if len(nodes) > 2:
                ended = [nodes.pop(), nodes.pop()]
                await store.redis.call("ZADD", keys.RING_LEASES, 1, ended[0].id, 2, ended[1].id)
        for reader in random.sample(readers, random.randrange(3)):
            reader.loses_replies = random.random() < 0.3
            with contextlib.suppress(StoreUnavailable):
                assert await reader.ring.view() == await _Reader(store.redis).ring.view()
    for reader in readers:
        reader.loses_replies = False
        assert await reader.ring.nodes() == sorted(nodes, key=lambda node: node.id)


async def test_a_join_or_departure_transfers_only_the_changed_node(store: Store) -> None:
    nodes = await asyncio.gather(*(store.ring.join("w", "", 60, balanced_id) for _ in range(30)))
    reader = _Reader(store.redis)
    await reader.ring.heartbeat(nodes[0], 60, 0)
    await reader.ring.heartbeat(nodes[1], 60, 0)
    await store.ring.leave(nodes[7])
    beats = [await reader.ring.heartbeat(nodes[number], 60, 0) for number in (0, 1)]
    assert [len(beat.ring.nodes) for beat in beats if beat.ring] == [29, 29]
    await store.ring.join("w", "", 60, balanced_id)
    await reader.ring.view()
    assert reader.seen == [30, 0, 1, 0, 1], "once for all nodes of a process"


async def test_a_reader_behind_the_log_reads_the_whole_ring(store: Store) -> None:
    reader = _Reader(store.redis)
    kept = [await store.ring.join("w", "", 60, balanced_id) for _ in range(3)]
    await reader.ring.view()
    await store.ring.leave(kept.pop())
    await store.ring.leave(await store.ring.join("w", "", 60, balanced_id))
    await store.redis.call("XTRIM", keys.RING_CHANGES, "MAXLEN", 1)
    assert await reader.ring.nodes() == sorted(kept, key=lambda node: node.id)
    assert reader.seen == [3, 2]


async def test_a_ring_that_lost_changes_is_read_again(store: Store) -> None:
    """Although others followed the lost ones, which a reader has seen."""
    first = await store.ring.join("first", "", 60, balanced_id)
    ring = (keys.RING_NODES, keys.RING_LEASES, keys.RING_CHANGES)
    saved = [await store.redis.call("DUMP", key) for key in ring]
    await store.ring.join("lost", "", 60, balanced_id)
    reader = _Reader(store.redis)
    assert len(await reader.ring.nodes()) == 2
    for key, value in zip(ring, saved, strict=True):
        await store.redis.call("RESTORE", key, 0, value, "REPLACE")
    other = await Ring(store.redis).join("other", "", 60, balanced_id)
    assert await reader.ring.nodes() == [first, other]
    await store.redis.call("DEL", *ring)
    assert await reader.ring.nodes() == []


async def test_a_ring_whose_log_is_lost_gets_a_later_version(store: Store) -> None:
    """Nodes ignore assignments by an earlier version than they know."""
    me = await store.ring.join("w", "", 60, balanced_id)
    before = await store.ring.view()
    await store.redis.call("DEL", keys.RING_CHANGES)
    after = (await store.ring.heartbeat(me, 60, before.version)).ring
    assert after is not None
    assert after.version > before.version
    assert after.nodes == before.nodes
    assert await _Reader(store.redis).ring.view() == after
    assert (await store.ring.heartbeat(me, 60, after.version)).ring is None


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
    closing = open_store(Settings(redis_url=store_url))
    under_way = [asyncio.create_task(closing.redis.call("BLPOP", "nothing", 4)) for _ in range(3)]
    await until(others, "they have asked")
    under_way += [asyncio.create_task(closing.redis.call("BLPOP", "nothing", 4)) for _ in range(3)]
    await asyncio.sleep(0)
    await closing.close()
    answers = await asyncio.gather(*under_way, return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    await until(none_left, "nothing was opened again")
