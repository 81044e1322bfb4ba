"""Waiting for conditions instead of sleeping."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(condition: Callable[[], Awaitable[T]], what: str, *, within_s: float = 20.0) -> T:
    """Await ``condition()`` repeatedly until its result is true, and return the result.

    Raises AssertionError, with ``what`` as the description of the condition, after ``within_s`` seconds.
    """
    try:
        async with asyncio.timeout(within_s):
            while not (result := await condition()):  # noqa: ASYNC110 - the event is in another process
                await asyncio.sleep(0.02)
            return result
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}") from None


async def until_so(condition: Callable[[], object], what: str, *, within_s: float = 20.0) -> None:
    """Call ``condition`` repeatedly until its result is true.

    Raises AssertionError, with ``what`` as the description of the condition, after ``within_s`` seconds.
    """

    async def is_true() -> bool:
        return bool(condition())

    await until(is_true, what, within_s=within_s)
