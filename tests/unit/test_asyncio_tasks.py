"""Running tasks together, and cancelling them although the caller or a cancellation is disturbed.

Exceptions of background tasks do not spread, and cancellation ends and closes all of them.
"""

import asyncio
import inspect

import pytest
from structlog.testing import capture_logs

from service.asyncio_tasks import BackgroundTasks, cancel_and_wait, run_logged, run_until_one_ends
from service.errors import StoreIdentityMismatch, StoreUnavailable


class _SlowTask:
    """A coroutine whose clean-up lasts until the test allows it to end."""

    def __init__(self) -> None:
        self.started, self.cancelled, self.may_end, self.ended = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
            False,
        )

    async def run(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
            await asyncio.shield(self.may_end.wait())
            self.ended = True


async def test_all_tasks_are_cancelled_although_the_caller_is_cancelled_twice() -> None:
    first, second = _SlowTask(), _SlowTask()
    both = asyncio.create_task(run_until_one_ends(first.run(), second.run()))
    await asyncio.gather(first.started.wait(), second.started.wait())
    both.cancel()
    await second.cancelled.wait()
    both.cancel()
    await asyncio.sleep(0)
    first.may_end.set()
    second.may_end.set()
    await asyncio.wait([both])
    assert both.cancelled()
    assert first.cancelled.is_set(), "the first task is cancelled as well"


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.asyncio_tasks.CANCEL_RETRY_S", 0.01)

    async def swallow_one_cancellation() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    task = asyncio.create_task(swallow_one_cancellation())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert task.cancelled()


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("when", ["before it began", "while it waits", "before it was given"])
async def test_cancelled_work_is_closed(when: str) -> None:
    tasks, work = BackgroundTasks(), wait_for_ever()
    if when == "before it was given":
        await tasks.cancel()
    tasks.start(work)
    if when == "while it waits":
        await asyncio.sleep(0)
    await tasks.cancel()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_an_exception_in_one_task_does_not_affect_others() -> None:
    tasks, done = BackgroundTasks(), asyncio.Event()

    async def break_down() -> None:
        raise ZeroDivisionError

    async def go_on() -> None:
        done.set()

    tasks.start(break_down())
    tasks.start(go_on())
    await asyncio.wait_for(done.wait(), 5)
    await tasks.cancel()


@pytest.mark.parametrize(
    ("error", "level"), [(StoreUnavailable("no answer"), "warning"), (StoreIdentityMismatch("empty"), "debug")]
)
async def test_a_store_that_must_not_be_used_is_not_reported_by_every_task(error: Exception, level: str) -> None:
    async def work() -> None:
        raise error

    with capture_logs() as logs:
        await run_logged(work())
    assert [each["log_level"] for each in logs] == [level]
