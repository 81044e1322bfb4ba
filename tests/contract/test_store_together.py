"""Commands of several askers travel together; each asker gets its own answer, or hears why there is none."""

import asyncio

import pytest
from redis.exceptions import RedisError

from service.store import Store
from service.store.link import Command
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
