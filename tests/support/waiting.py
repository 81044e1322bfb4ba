"""Waiting for what a test needs, instead of sleeping for luck."""

import asyncio
import itertools
from collections.abc import Callable

_LOOK_EVERY_S = 0.01


async def until(condition: Callable[[], object], timeout_s: float = 15.0) -> None:
    """Return when the condition is true. Raises ``TimeoutError`` after ``timeout_s``."""
    async with asyncio.timeout(timeout_s):
        for _ in itertools.takewhile(lambda _: not condition(), itertools.repeat(None)):
            await asyncio.sleep(_LOOK_EVERY_S)
