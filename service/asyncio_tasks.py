"""Helpers for running, cancelling and retrying asyncio tasks.

- :class:`BackgroundTasks` runs tasks that no caller awaits. It logs exceptions, and cancels all tasks together.
- :func:`retry_while_unavailable` repeats work that failed because the store was unavailable.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import structlog

from service.errors import CoronetError, StoreIdentityMismatch, StoreUnavailable

CANCEL_RETRY_S: Final = 3.0
"""Seconds until a task that has not ended is cancelled again.

This is necessary because ``asyncio.wait_for`` of Python 3.11 can ignore a cancellation.
"""


async def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it returns, or until this process receives SIGTERM or SIGINT.

    On either signal, ``work`` is cancelled. Exceptions that ``work`` raises are passed on to the caller.
    """
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
    """Run coroutines concurrently until one ends. Then cancel the others in reverse order and wait for them.

    If the coroutine that ended first raised an exception, this function raises that exception.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_and_wait(*reversed(tasks))


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks one after the other, and wait until all have ended. Ignore their results and exceptions.

    If this function is itself cancelled while it waits, it still waits for all tasks, and then raises CancelledError.
    """
    # Otherwise the tasks would go on without an owner.
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


log = structlog.get_logger(__name__)


class BackgroundTasks:
    """Tasks that no caller awaits.

    If a task raises an exception, the exception is logged (:func:`run_logged`), and the other tasks continue.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._is_cancelled = False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background. After :meth:`cancel`, the coroutine is closed without being run."""
        if self._is_cancelled:
            work.close()
            return
        task = asyncio.create_task(run_logged(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: work.close())  # a task cancelled before its first step never began it

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until all have ended. Later calls of :meth:`start` start no tasks."""
        self._is_cancelled = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def run_logged(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine, and log its exception instead of raising it.

    Use this only for work that is repeated later anyway, because the caller does not learn of the exception. Errors
    that Coronet raises deliberately, for example because the store is unavailable, are logged without a traceback. That
    the store must not be used is not logged here, because the data loss monitor of each process logs it once.
    """
    name = getattr(work, "__qualname__", "")
    try:
        await work
    except StoreIdentityMismatch as error:
        log.debug("background task stopped, store rejected", task=name, error=str(error))
    except StoreUnavailable as error:
        log.warning("background task stopped, store unavailable", task=name, error=str(error))
    except CoronetError as error:
        log.info("background task stopped early", task=name, error=str(error))
    except Exception:
        log.exception("task failed", task=name)


_RETRY_S: Final = 0.5
_T = TypeVar("_T")


async def retry_while_unavailable(work: Callable[[], Awaitable[_T]], *, logs_reason: bool = False) -> _T:
    """Await ``work()`` and return its result; while it raises StoreUnavailable, wait a moment and try again.

    If ``logs_reason`` is true, each new reason why the store is unavailable is logged.
    """
    last_reason = ""
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            if logs_reason and str(error) != last_reason:
                last_reason = str(error)
                log.warning("store unavailable, will retry", reason=last_reason)
            await asyncio.sleep(_RETRY_S)
