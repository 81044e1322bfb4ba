"""Background tasks, which no caller awaits: their exceptions are logged, and they are cancelled together."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from service.errors import CoronetError, StoreUnavailable

log = structlog.get_logger(__name__)


class BackgroundTasks:
    """Tasks that no caller awaits.

    If a task raises an exception, the exception is logged (:func:`run_logged`), and the other tasks continue.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._is_cancelled = False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; after :meth:`cancel`, the coroutine is closed without being run."""
        if self._is_cancelled:
            work.close()
            return
        task = asyncio.create_task(run_logged(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: work.close())  # a task cancelled before its first step never began it

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until all have ended. No tasks are started afterwards."""
        self._is_cancelled = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def run_logged(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine, and log its exception instead of raising it. Callers repeat the work at a later time.

    Errors that Coronet raises on purpose, for example because the store is unavailable, are logged without a traceback.
    """
    name = getattr(work, "__qualname__", "")
    try:
        await work
    except StoreUnavailable as error:
        log.warning("task interrupted", task=name, error=str(error))
    except CoronetError as error:
        log.info("task stopped early", task=name, error=str(error))
    except Exception:
        log.exception("task failed", task=name)
