"""Waiting for a condition instead of for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T]], what: str, *, within_s: float = 20.0) -> T:
    """Look again and again until what is seen is true, and return it; fail in words after ``within_s``."""
    try:
        async with asyncio.timeout(within_s):
            while not (seen := await look()):  # noqa: ASYNC110 - what is awaited happens in other processes
                await asyncio.sleep(0.02)
            return seen
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}") from None


async def until_so(condition: Callable[[], object], what: str, *, within_s: float = 20.0) -> None:
    """Do the same for a condition that need not be awaited."""

    async def look() -> bool:
        return bool(condition())

    await until(look, what, within_s=within_s)
