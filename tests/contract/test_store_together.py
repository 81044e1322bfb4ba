"""Commands of several askers travel together; each asker gets its own answer, or hears why there is none."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import RedisError

from service.store import Store
from service.store.link import Command, Link
from service.store.slots import Address
from service.store.together import Together


async def test_each_asker_gets_its_own_answers(store: Store) -> None:
    together = Together(store.link)
    asked: list[list[Command]] = [[("ECHO", "a"), ("ECHO", "b")], [], [("ECHO", "c")]]
    assert await asyncio.gather(*map(together.many, asked)) == [[b"a", b"b"], [], [b"c"]]


async def test_who_gives_up_takes_nothing_from_the_others(store: Store) -> None:
    together = Together(store.link)
    gone, stays = (asyncio.ensure_future(together.many([("ECHO", name)])) for name in ("a", "b"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == [b"b"]


async def test_a_bug_in_one_command_leaves_nobody_waiting(store: Store) -> None:
    together = Together(store.link)
    asked: list[list[Command]] = [[("NOSUCHCOMMAND",)], [("ECHO", "b")]]
    async with asyncio.timeout(5):
        replies = await asyncio.gather(*map(together.many, asked), return_exceptions=True)
    assert [isinstance(reply, RedisError) for reply in replies] == [True, True]
    with pytest.raises(RedisError):
        await together.many(asked[0])


class _OneNodeIsDown(Link):
    """Two nodes of a cluster, by what a command says."""

    def __init__(self) -> None:
        self.sent: list[Sequence[Command]] = []

    def node_of(self, command: Command) -> Address | None:
        return str(command[1]), 1

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        self.sent.append(commands)
        if any(self.node_of(command) == ("down", 1) for command in commands):
            await asyncio.Event().wait()
        return [command[0] for command in commands]


async def test_who_asks_a_node_that_is_down_holds_up_nobody_who_asks_another() -> None:
    link = _OneNodeIsDown()
    together = Together(link)
    waits = asyncio.ensure_future(together.many([("a", "down"), ("b", "up")]))
    try:
        async with asyncio.timeout(5):
            replies = await asyncio.gather(together.many([("c", "up")]), together.many([("d", "up")]))
        assert [*replies] == [["c"], ["d"]]
        assert len(link.sent) == 2
        assert not waits.done()
    finally:
        waits.cancel()
        for sending in together._sending:
            sending.cancel()
