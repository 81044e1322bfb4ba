"""A node that is cancelled before its work began has begun nothing."""

import asyncio
from collections.abc import Awaitable
from typing import cast

from workers.node import Node
from workers.tasks import BackgroundTasks


async def test_vital_work_is_begun_by_its_own_task_alone() -> None:
    """What was made for a task that never takes its first step would never be awaited."""
    begun = 0

    def begin() -> Awaitable[None]:
        nonlocal begun
        begun += 1
        return asyncio.sleep(60)

    tasks = BackgroundTasks()
    tasks.start(Node._vital(cast("Node", None), begin))
    await tasks.cancel()
    assert begun == 0
    tasks = BackgroundTasks()
    tasks.start(Node._vital(cast("Node", None), begin))
    await asyncio.sleep(0)
    await tasks.cancel()
    assert begun == 1
