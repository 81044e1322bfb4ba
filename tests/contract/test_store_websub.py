"""Hub subscriptions in the store: changed by one at a time, and never lost to an upkeep that walks the registry."""

import asyncio

import msgspec

from service.feeds.websub import HubState, Named
from service.store import Store

CID = "ab" * 20
STATE = HubState(Named("https://hub.example/", "https://example.org/feed"), "a-secret", "a-token")


def _failed_once_more(state: HubState | None) -> HubState:
    return msgspec.structs.replace(STATE, failures=state.failures + 1 if state else 1)


async def test_of_many_who_change_a_subscription_at_once_exactly_one_does(store: Store) -> None:
    changed = [msgspec.structs.replace(STATE, token=str(number)) for number in range(8)]
    done = await asyncio.gather(*(store.websub.swap(CID, None, state) for state in changed))
    assert done.count(True) == 1
    assert await store.websub.get(CID) == changed[done.index(True)]


async def test_no_change_is_lost_when_several_decide_at_once(store: Store) -> None:
    await asyncio.gather(*(store.websub.change(CID, _failed_once_more) for _ in range(4)))
    assert await store.websub.get(CID) == msgspec.structs.replace(STATE, failures=4)


async def test_what_is_subscribed_is_found_by_its_part_of_the_id_space(store: Store) -> None:
    assert await store.websub.swap(CID, None, STATE)
    assert await store.websub.registered(["aa", "ab", "ac"]) == [CID]
    assert await store.websub.swap(CID, STATE, None)
    assert await store.websub.get(CID) is None
    await store.websub.unregister([CID])
    assert await store.websub.registered(["ab"]) == []
