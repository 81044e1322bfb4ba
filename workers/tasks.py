"""Background work of one life of a node: contained, and cancelled with it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class BackgroundTasks:
    """BackgroundTasks that nobody waits for. A bug in one is logged and stays its own."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._over = False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in the background, unless everything was cancelled."""
        if self._over:
            work.close()
            return
        task = asyncio.create_task(_contained(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: work.close())  # a task cancelled before its first step never began it

    async def cancel(self) -> None:
        """Cancel everything, for good, and wait until it has ended."""
        self._over = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("a bug in background work")
