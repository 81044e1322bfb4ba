"""Waiting for conditions instead of sleeping."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T]], what: str, *, within_s: float = 20.0) -> T:
    """Poll ``look`` until its result is true, and return it; raise AssertionError with ``what`` after ``within_s``."""
    try:
        async with asyncio.timeout(within_s):
            while not (result := await look()):  # noqa: ASYNC110 - the event is in another process
                await asyncio.sleep(0.02)
            return result
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}") from None


async def until_so(condition: Callable[[], object], what: str, *, within_s: float = 20.0) -> None:
    """Poll a synchronous condition until it is true; raise AssertionError with ``what`` after ``within_s``."""

    async def look() -> bool:
        return bool(condition())

    await until(look, what, within_s=within_s)
