"""Partitions shared by processes: each has one holder; those of a failed process are released after recovery."""

import asyncio

from service.store import Store
from service.store.client import keys
from tests.support.partition_holders import read_holders
from tests.support.waiting import until

PARTS = 8
LONG_S = 60.0
SOON_S = 0.05


async def beat(store: Store, who: str, *back: int, ttl_s: float = LONG_S) -> frozenset[int]:
    return (await store.partition_leases.heartbeat("bots", who, PARTS, ttl_s, frozenset(back))).partitions


async def test_the_second_process_gets_partitions_that_the_first_returns(store: Store) -> None:
    assert await beat(store, "a") == frozenset(range(PARTS))
    assert await beat(store, "b") == frozenset(), "nothing is taken away from who lives"
    spread = await store.partition_leases.heartbeat("bots", "a", PARTS, LONG_S, frozenset())
    assert (len(spread.partitions), spread.max_partitions) == (PARTS, PARTS // 2)
    kept = await beat(store, "a", 4, 5, 6, 7)
    assert kept == {0, 1, 2, 3}
    assert await beat(store, "b") == {4, 5, 6, 7}
    assert await read_holders(store, "bots") == dict(zip(range(PARTS), "aaaabbbb", strict=True))


async def test_a_process_cannot_release_another_ones_partitions(store: Store) -> None:
    await beat(store, "a")
    await beat(store, "b", *range(PARTS))
    assert set((await read_holders(store, "bots")).values()) == {"a"}


async def test_with_few_partitions_each_has_one_holder(store: Store) -> None:
    found = [
        (await store.partition_leases.heartbeat("one", who, 1, LONG_S, frozenset())) for who in ("c", "a", "b", "c")
    ]
    assert [len(spread.partitions) for spread in found] == [1, 0, 0, 1]
    assert found[-1].max_partitions == 1, "who has it keeps it"


async def test_partitions_of_a_failed_process_are_free_after_recovery(store: Store) -> None:
    await beat(store, "b", ttl_s=SOON_S)

    async def dead() -> bool:
        return bool((await store.partition_leases.heartbeat("bots", "a", PARTS, LONG_S, frozenset())).failed)

    await until(dead, "b's lease has ended")
    assert await beat(store, "a") == frozenset()
    assert await beat(store, "c") == frozenset()
    spread = await store.partition_leases.heartbeat("bots", "c", PARTS, LONG_S, frozenset())
    assert spread.failed == (), "one of the living buries them"
    assert await store.partition_leases.release_failed("bots", "b")
    assert await store.partition_leases.release_failed("bots", "b"), "twice is no harm"
    assert len(await beat(store, "a")) == PARTS // 2
    assert len(await beat(store, "c")) == PARTS // 2


async def test_partitions_of_a_process_without_a_lease_become_free(store: Store) -> None:
    await beat(store, "ghost")
    await store.redis.call("ZREM", keys.partition_leases("bots")[0], "ghost")

    async def dead() -> tuple[str, ...]:
        spread = await store.partition_leases.heartbeat("bots", "a", PARTS, LONG_S, frozenset())
        return tuple(each.holder for each in spread.failed)

    assert await until(dead, "the ghost is dead") == ("ghost",)
    assert await store.partition_leases.release_failed("bots", "ghost")
    assert await beat(store, "a") == frozenset(range(PARTS))


async def test_a_process_that_renews_its_lease_keeps_its_partitions(store: Store) -> None:
    held = await beat(store, "b", ttl_s=SOON_S)

    async def dead() -> bool:
        return bool((await store.partition_leases.heartbeat("bots", "a", PARTS, LONG_S, frozenset())).failed)

    await until(dead, "b's lease has ended")
    assert await beat(store, "b") == held
    assert not await store.partition_leases.release_failed("bots", "b")


async def test_a_recovered_process_starts_without_partitions(store: Store) -> None:
    await beat(store, "b")
    await store.partition_leases.release("bots", "b")
    assert await read_holders(store, "bots") == {}
    assert await beat(store, "a") == frozenset(range(PARTS))
    assert await beat(store, "b") == frozenset()


async def test_concurrent_heartbeats_assign_each_partition_once(store: Store) -> None:
    found = await asyncio.gather(*(beat(store, f"w{n}") for n in range(5)))
    held = [part for mine in found for part in mine]
    assert sorted(held) == list(range(PARTS))
