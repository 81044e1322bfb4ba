"""Periodic tasks: each first runs after its fraction of its interval."""

import asyncio

from workers.node import PeriodicTasks

LONG_S = 3600.0


async def test_a_task_first_runs_after_its_fraction_of_the_interval() -> None:
    ran, done = list[str](), asyncio.Event()

    async def late() -> None:
        ran.append("late")

    async def soon() -> None:
        ran.append("soon")
        done.set()

    with PeriodicTasks() as periodic:
        periodic.every(LONG_S, late)
        periodic.every(LONG_S, late, 0.5)
        periodic.every(LONG_S, soon, 0.0)
        async with asyncio.timeout(5):
            await done.wait()
    assert ran == ["soon"]
