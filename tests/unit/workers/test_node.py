"""The tasks of a node."""

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import cast

from service.asyncio_tasks import BackgroundTasks
from service.settings import Settings
from service.tick_timer import TickTimer
from workers.node import Node


async def test_a_cancelled_task_creates_no_coroutine() -> None:
    """A coroutine created for a task that never takes its first step would never be awaited."""
    begun = 0

    def begin() -> Awaitable[None]:
        nonlocal begun
        begun += 1
        return asyncio.sleep(60)

    tasks = BackgroundTasks()
    tasks.start(Node._end_on_error(cast("Node", None), begin))
    await tasks.cancel()
    assert begun == 0
    tasks = BackgroundTasks()
    tasks.start(Node._end_on_error(cast("Node", None), begin))
    await asyncio.sleep(0)
    await tasks.cancel()
    assert begun == 1


async def test_a_periodic_task_that_fails_is_called_again() -> None:
    timer, calls, done = TickTimer(0.001), list[int](), asyncio.Event()

    async def fail() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            done.set()
        raise OSError("disk full")

    tasks = BackgroundTasks()
    node = SimpleNamespace(_context=SimpleNamespace(timer=timer, settings=Settings()), _fraction=0.0)
    tasks.start(timer.run())
    tasks.start(Node._repeat_at_ticks(cast("Node", node), fail, 0.0))
    async with asyncio.timeout(5):
        await done.wait()
    await tasks.cancel()
