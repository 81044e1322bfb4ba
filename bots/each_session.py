"""Work that is done once in each session of an account."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from bots.link import AskingLink, LinkLost

_WITHIN_S: Final = 30.0


async def each_session(
    link: AskingLink, began: asyncio.Event, do: Callable[[], Awaitable[None]], within_s: float = _WITHIN_S
) -> None:
    """Await ``do`` whenever ``began`` is set, until cancelled; what takes too long is left to the next session."""
    while True:
        await began.wait()
        began.clear()
        if link.is_account:
            with contextlib.suppress(TimeoutError, LinkLost):
                async with asyncio.timeout(within_s):
                    await do()
