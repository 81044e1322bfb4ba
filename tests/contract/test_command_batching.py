"""Commands of several callers are sent together; each caller gets its own replies, or its own error."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import RedisError

from service.errors import StoreUnavailable
from service.store import Store
from service.store.client.cluster_routing import Address, NodePools, SlotMap
from service.store.client.command_batching import CommandBatcher
from service.store.client.node_connections import Command


async def test_each_caller_gets_its_own_replies(store: Store) -> None:
    asked: list[list[Command]] = [[("ECHO", "a"), ("ECHO", "b")], [], [("ECHO", "c")]]
    assert await asyncio.gather(*map(store.redis.call_many, asked)) == [[b"a", b"b"], [], [b"c"]]


async def test_a_cancelled_caller_does_not_affect_others(store: Store) -> None:
    gone, stays = (asyncio.ensure_future(store.redis.call_many([("ECHO", name)])) for name in ("a", "b"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == [b"b"]


async def test_an_error_affects_only_the_caller_of_the_command(store: Store) -> None:
    await store.redis.call("SET", "cn:{x}:text", "no list")
    asked: list[list[Command]] = [
        [("ECHO", "a"), ("LPUSH", "cn:{x}:text", "b")],
        [("ECHO", "c")],
        [("LLEN", "cn:{x}:text")],
    ]
    async with asyncio.timeout(5):
        first, second, third = await asyncio.gather(*map(store.redis.call_many, asked), return_exceptions=True)
    assert isinstance(first, RedisError)
    assert second == [b"c"]
    assert isinstance(third, RedisError)
    with pytest.raises(RedisError, match="WRONGTYPE"):
        await store.redis.call_many(asked[0])


async def test_a_rejected_command_affects_only_its_caller(store: Store) -> None:
    refuses: Command = ("EVAL", "return redis.error_reply('MISCONF cannot write')", 0)
    asked: list[list[Command]] = [[refuses], [("ECHO", "c")]]
    refused, answered = await asyncio.gather(*map(store.redis.call_many, asked), return_exceptions=True)
    assert isinstance(refused, StoreUnavailable)
    assert answered == [b"c"]


class _OneNodeIsDown(NodePools):
    """Pools of a cluster with two nodes, one of which is unavailable; a command's argument determines its node."""

    def __init__(self) -> None:
        self.sent: list[Sequence[Command]] = []

    def node_of(self, command: Command) -> Address | None:
        return str(command[1]), 1

    async def call_each(self, commands: Sequence[Command]) -> list[Any]:
        self.sent.append(commands)
        if any(self.node_of(command) == ("down", 1) for command in commands):
            await asyncio.Event().wait()
        return [command[0] for command in commands]


async def test_tasks_that_start_together_share_a_round_trip_although_one_issues_its_command_later() -> None:
    pools = _OneNodeIsDown()
    batcher = CommandBatcher(pools, SlotMap())

    async def ask_later() -> list[Any]:
        return await batcher.submit([("ECHO", "b")])

    first = batcher.submit([("ECHO", "a")])
    assert [*await asyncio.gather(first, ask_later())] == [["ECHO"], ["ECHO"]]
    assert len(pools.sent) == 1


async def test_an_unavailable_node_delays_only_its_own_commands() -> None:
    pools, slots = _OneNodeIsDown(), SlotMap()
    slots.masters = [("down", 1), ("up", 1)]
    batcher = CommandBatcher(pools, slots)
    waits = batcher.submit([("a", "down"), ("b", "up")])
    try:
        async with asyncio.timeout(5):
            replies = await asyncio.gather(batcher.submit([("c", "up")]), batcher.submit([("d", "up")]))
        assert [*replies] == [["c"], ["d"]]
        assert len(pools.sent) == 2
        assert not waits.done()
    finally:
        waits.cancel()
        for sending in batcher._sending:
            sending.cancel()
