"""Tasks that run together and end together."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

CANCEL_AGAIN_S: Final = 3.0
"""``wait_for`` of Python 3.11, also inside drivers, can swallow a cancellation: so it is repeated."""


async def together(*works: Coroutine[Any, Any, Any]) -> None:
    """Run until the first one ends, then end the others, last one first; raise what the first one raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end(*reversed(tasks))


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, one after the other, and return when they have ended, however they did.

    Whoever is cancelled here ends them all the same: what was left running would go on without anybody to end it.
    """
    cancelled = False
    for task in tasks:
        while not task.done():
            task.cancel()
            try:
                await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
            except asyncio.CancelledError:
                cancelled = True
    if cancelled:
        raise asyncio.CancelledError
