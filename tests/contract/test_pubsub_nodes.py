"""Positions of pubsub nodes are stored by service; changes are announced only while somebody listens."""

import pytest

from service.store import Store
from service.store.channels.pubsub_nodes import PublishedPosition
from service.store.client import keys

SERVICE, OTHER = "pubsub.example.org", "pubsub.example.net"
ONE, TWO = "1" * 40, "2" * 40


async def test_each_service_has_its_own_positions(store: Store) -> None:
    await store.pubsub_nodes.put(SERVICE, ONE, PublishedPosition(3, "One"))
    await store.pubsub_nodes.put(SERVICE, TWO, PublishedPosition())
    await store.pubsub_nodes.put(OTHER, ONE, PublishedPosition(1, "One"))
    assert await store.pubsub_nodes.positions(SERVICE, [TWO, ONE, "3" * 40]) == {
        ONE: PublishedPosition(3, "One"),
        TWO: PublishedPosition(),
    }
    assert sorted(await store.pubsub_nodes.channel_ids(SERVICE)) == [ONE, TWO]
    await store.pubsub_nodes.drop(SERVICE, ONE)
    assert await store.pubsub_nodes.channel_ids(SERVICE) == [TWO]
    assert await store.pubsub_nodes.positions(OTHER, [ONE]) == {ONE: PublishedPosition(1, "One")}
    assert await store.pubsub_nodes.positions(SERVICE, []) == {}


async def test_nothing_is_stored_while_no_process_waits(store: Store) -> None:
    await store.pubsub_nodes.notify_changed(ONE)
    assert await store.redis.call("EXISTS", keys.CHANGED_CHANNELS) == 0


async def test_a_waiting_process_is_notified_of_changed_channels(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.client.streams.MAX_BLOCK_S", 0.01)
    none, after = await store.pubsub_nodes.wait_for_changes("")
    assert none == []
    for cid in (ONE, TWO, ONE):
        await store.pubsub_nodes.notify_changed(cid)
    changed, after = await store.pubsub_nodes.wait_for_changes(after)
    assert changed == [ONE, TWO]
    assert await store.pubsub_nodes.wait_for_changes(after) == ([], after)
    assert 0 < await store.redis.call("TTL", keys.CHANGED_CHANNELS) <= 86_400
