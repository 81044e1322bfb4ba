"""Fan-outs of large channels by several workers: each user is given each version once and in order."""

import asyncio
from itertools import count
from random import Random
from typing import Any

import pytest

from service.feeds.canonical_urls import channel_id
from service.model import Channel, ChannelId, NodeInfo, UserId
from service.overlay.ring import RingView, balanced_id
from service.store import Store
from service.store.client import keys
from service.store.coordination.worker_inboxes import InboxMessage
from service.store.delivery import fanout_units
from tests.integration.workers.conftest import StartWorker
from tests.support.channels import make_channel, publish
from tests.support.waiting import until
from workers.ownership import fanout
from workers.ownership.fanout import FanOut, choose_helpers

PEOPLE = [f"person{number}@localhost" for number in range(60)]
UIDS = [keys.user_id(jid) for jid in PEOPLE]
LAST = 3


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PAGE_SIZE": 4, "DIVIDE_FROM": 40, "UNIT_SIZE": 8, "_WAIT_S": 0.005}.items():
        monkeypatch.setattr(fanout, name, value)
    monkeypatch.setattr(fanout_units, "CLAIM_S", 0.05)


async def _subscribed(store: Store, url: str = "https://example.org/feed") -> Channel:
    """Create a channel to which all are subscribed, and publish versions 2 to LAST."""
    channel = await make_channel(store, url)
    await asyncio.gather(*(store.subscriptions.subscribe(jid, channel.id) for jid in PEOPLE))
    for base in range(1, LAST):
        await publish(store, channel, f"entry {base}", base=base)
    return channel


async def _queued_versions(store: Store) -> set[tuple[int, ...]]:
    """Return the different sequences of versions that users have in their outboxes."""
    queued = await store.outbox.queued_items(dict.fromkeys(UIDS, ""), 100)
    return {tuple(each.item.version for each in items) for items in queued}


async def _adopt_and_run(store: Store, channel_id: ChannelId, fan_out: FanOut, node: str = "a" * 40) -> bool:
    (state,) = await store.channels.adopt([channel_id], node)
    assert state is not None
    return await fan_out.run(channel_id, state.epoch)


async def test_helpers_and_owner_share_the_units(store: Store) -> None:
    helpers = [FanOut(store, 3) for _ in range(2)]
    helping: list[asyncio.Task[None]] = []

    async def invite(channel_id: ChannelId, _count: int) -> None:
        helping.extend(asyncio.create_task(helper.help(channel_id)) for helper in helpers)

    channel = await _subscribed(store)
    assert await _adopt_and_run(store, channel.id, FanOut(store, 3, invite))
    assert await _queued_versions(store) == {tuple(range(2, LAST + 1))}
    assert len(helping) == 2 * (LAST - 1)
    await asyncio.gather(*helping)


@pytest.mark.parametrize("seed", range(3))
async def test_killed_and_frozen_workers_lose_repeat_and_reorder_nothing(
    store: Store, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners and helpers end at any point; a frozen one continues after its claim has passed on."""
    chosen = Random(seed)  # noqa: S311 - repeatable, not secret
    channel = await _subscribed(store)
    enqueue = store.outbox.enqueue

    async def enqueue_late(*args: Any) -> list[UserId]:
        if chosen.random() < 0.05:
            await asyncio.sleep(0.1)
        return await enqueue(*args)

    monkeypatch.setattr(store.outbox, "enqueue", enqueue_late)

    async def work(number: int) -> None:
        fan_out = FanOut(store, 3)
        if number % 3:
            await fan_out.help(channel.id)
        else:
            await _adopt_and_run(store, channel.id, fan_out, f"{number:040x}")

    for number in range(9):
        task = asyncio.create_task(work(number))
        await asyncio.sleep(chosen.random() * 0.05)
        if chosen.random() < 0.5:
            task.cancel()
    assert await _adopt_and_run(store, channel.id, FanOut(store, 3))
    assert await _queued_versions(store) == {tuple(range(2, LAST + 1))}
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert (state.fanned_version, state.cursor) == (LAST, "")


async def test_lost_units_are_repeated(store: Store) -> None:
    channel = await _subscribed(store)
    lost: list[object] = []

    async def lose(channel_id: ChannelId, _count: int) -> None:
        if not lost:
            lost.append(await store.redis.call("DEL", keys.fanout_units(channel_id)))

    assert await _adopt_and_run(store, channel.id, FanOut(store, 3, lose))
    assert await _queued_versions(store) == {tuple(range(2, LAST + 1))}


async def test_a_small_channel_has_no_units(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "DIVIDE_FROM", len(PEOPLE) + 1)
    channel = await _subscribed(store)

    async def fail(_channel_id: ChannelId, _count: int) -> None:
        pytest.fail("nobody has to help")

    assert await _adopt_and_run(store, channel.id, FanOut(store, 3, fail))
    assert await _queued_versions(store) == {tuple(range(2, LAST + 1))}


async def test_a_worker_asks_others_to_help_and_helps_them(
    store: Store, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PAGE_SIZE": 20, "UNIT_SIZE": 30, "UNITS_PER_WORKER": 1}.items():
        monkeypatch.setattr(fanout, name, value)
    other = await store.ring.join("other", "", 60.0, balanced_id)
    expected = RingView(0, (other, NodeInfo(balanced_id([other.id]), 2, "", 0.0)))
    urls = (f"http://127.0.0.1:1/{number}" for number in count())
    channel = await _subscribed(store, next(url for url in urls if expected.owner(channel_id(url)) != other.id))
    await start_worker()

    async def asked() -> bool:
        messages, _ = await store.node_inboxes.read(other.id, "0")
        return ("fanout", channel.id.encode()) in [(message.kind, message.payload) for message in messages]

    async def complete() -> bool:
        (state,) = await store.channels.states([channel.id])
        return state is not None and state.fanned_version == LAST

    async def one_more_queued() -> bool:
        return await _queued_versions(store) == {tuple(range(2, LAST + 2))}

    await until(asked, "the other node is asked for help")
    await until(complete, "the worker has queued all versions")
    assert await _queued_versions(store) == {tuple(range(2, LAST + 1))}
    await publish(store, channel, "one more", base=LAST)
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    units = await store.channel_index.divide(channel.id, "", 2)
    assert await store.fanout_units.divide(channel.id, state.epoch, LAST + 1, units)
    worker = next(node for node in await store.ring.nodes() if node.id != other.id)
    await store.node_inboxes.send([(worker.id, InboxMessage("fanout", other.id, channel.id.encode()))])
    await until(one_more_queued, "the worker has queued the units")


def test_helpers_are_other_processes_near_the_channel() -> None:
    nodes = tuple(NodeInfo(f"{number:x}" * 40, 1, "", 0.0, process=f"{number // 2}") for number in range(8))
    ring = RingView(1, nodes)
    assert choose_helpers(ring, "0" * 40, nodes[0], 2) == [nodes[2].id, nodes[4].id]
    assert choose_helpers(ring, "0" * 40, nodes[0], 9) == [nodes[2].id, nodes[4].id, nodes[6].id]
    assert choose_helpers(RingView(1, nodes[:1]), "0" * 40, nodes[0], 9) == []
