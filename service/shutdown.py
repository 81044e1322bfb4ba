"""Graceful shutdown: SIGTERM and SIGINT cancel a program's main task, so that its ``finally`` blocks run."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any


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
