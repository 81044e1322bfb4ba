"""The tasks of a node."""

import asyncio
from collections.abc import Awaitable
from typing import cast

from workers.node import Node
from workers.tasks import BackgroundTasks


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
