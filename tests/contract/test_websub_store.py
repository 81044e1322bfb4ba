"""Hub subscriptions: changed by compare-and-set, and never lost to the maintenance that lists the registry."""

import asyncio

import msgspec
import pytest

from service.feeds.websub_protocol import HubState, HubTopic
from service.store import Store
from service.store.channels.websub_store import Push
from service.store.client import keys

CID = "ab" * 20
STATE = HubState(HubTopic("https://hub.example/", "https://example.org/feed"), "a-secret", "a-token")


def _failed_once_more(state: HubState | None) -> HubState:
    return msgspec.structs.replace(STATE, failures=state.failures + 1 if state else 1)


async def test_exactly_one_of_concurrent_changes_succeeds(store: Store) -> None:
    changed = [msgspec.structs.replace(STATE, token=str(number)) for number in range(8)]
    done = await asyncio.gather(*(store.websub.compare_and_set(CID, None, state) for state in changed))
    assert done.count(True) == 1
    assert await store.websub.get(CID) == changed[done.index(True)]


async def test_concurrent_changes_of_a_hub_state_are_all_applied(store: Store) -> None:
    await asyncio.gather(*(store.websub.change(CID, _failed_once_more) for _ in range(4)))
    assert await store.websub.get(CID) == msgspec.structs.replace(STATE, failures=4)


async def test_hub_subscriptions_are_found_by_bucket(store: Store) -> None:
    assert await store.websub.compare_and_set(CID, None, STATE)
    assert await store.websub.ids_in_buckets(["aa", "ab", "ac"]) == [CID]
    assert await store.websub.compare_and_set(CID, STATE, None)
    assert await store.websub.get(CID) is None
    await store.websub.unregister([CID])
    assert await store.websub.ids_in_buckets(["ab"]) == []


LARGE, FULL = Push(b"x" * 3_000_000), Push(b"x" * 5 * 1024 * 1024)


async def test_queued_pushes_of_a_channel_are_limited_in_size(store: Store) -> None:
    await store.websub.queue_push(CID, LARGE)
    await store.websub.queue_push(CID, Push(b"<feed/>"))
    assert len(await store.websub.take_pushes(CID)) == 2
    await store.websub.queue_push(CID, FULL)
    await store.websub.queue_push(CID, LARGE)
    assert await store.websub.take_pushes(CID) == [Push()], "they become one poll"


async def test_an_empty_push_replaces_all_pushes_until_taken(store: Store) -> None:
    for push in (Push(b"<feed/>"), Push(), LARGE, Push(b"<feed/>")):
        await store.websub.queue_push(CID, push)
    assert await store.websub.take_pushes(CID) == [Push()]


async def test_pushes_of_all_channels_are_limited_in_total_size(store: Store) -> None:
    cids = [f"{number:040x}" for number in range(12)]
    for cid in cids:
        await store.websub.queue_push(cid, FULL)
    waiting = [await store.websub.queued_bytes(cid) for cid in cids]
    assert sum(waiting) < 48 * 1024 * 1024
    assert min(waiting) < 100, "the last ones became polls"
    await store.websub.queue_push(CID, Push(b"<feed/>"))
    assert await store.websub.take_pushes(CID) == [Push(b"<feed/>")]
    await store.websub.drop_pushes(cids[0])
    await store.websub.queue_push(CID, FULL)
    assert await store.websub.take_pushes(CID) == [FULL], "what was dropped takes no room"


async def test_expired_pushes_take_no_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.channels.websub_store._PUSH_TTL_MS", 1)
    for number in range(30):
        await store.websub.queue_push(f"{number:040x}", FULL)
        await asyncio.sleep(0.01)
    _, sizes, until = keys.push_queue(CID)
    monkeypatch.undo()
    await store.websub.queue_push(CID, FULL)
    assert await store.websub.take_pushes(CID) == [FULL]
    assert await store.redis.call("ZCARD", until) == 0
    assert await store.redis.call("HGET", sizes, "all") in (b"0", None)
