"""Background tasks: exceptions do not spread, and cancellation ends and closes all of them."""

import asyncio
import inspect

import pytest

from service.background_tasks import BackgroundTasks


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
