"""Running asyncio tasks until one ends or the process has to stop, and cancelling them."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, Final

CANCEL_RETRY_S: Final = 3.0
"""Seconds after which a cancellation is repeated: Python 3.11's ``wait_for``, which drivers use, can swallow one."""


async def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it returns, or until this process gets SIGTERM or SIGINT; exceptions are propagated."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def run_until_one_ends(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run coroutines concurrently until one ends; then cancel the others, the last one first, and wait for them.

    Raises the exception of the coroutine that ended first, if any.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_and_wait(*reversed(tasks))


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks one after the other, and wait until all have ended; their results are ignored.

    If the caller is cancelled in the meantime, the tasks are still cancelled and awaited before CancelledError is
    raised; otherwise they would go on without an owner.
    """
    is_cancelled = False
    for task in tasks:
        while not task.done():
            task.cancel()
            try:
                await asyncio.wait([task], timeout=CANCEL_RETRY_S)
            except asyncio.CancelledError:
                is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
