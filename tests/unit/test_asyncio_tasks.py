"""Running tasks together, and cancelling them although the caller or a cancellation is disturbed."""

import asyncio

import pytest

from service.asyncio_tasks import cancel_and_wait, run_until_one_ends


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
