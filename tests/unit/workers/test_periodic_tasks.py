"""PeriodicTasks: each begins at its own share of its interval."""

import asyncio

from workers.node import PeriodicTasks

LONG_S = 3600.0


async def test_a_phase_runs_first_after_its_share_of_the_interval() -> None:
    ran, done = list[str](), asyncio.Event()

    async def late() -> None:
        ran.append("late")

    async def soon() -> None:
        ran.append("soon")
        done.set()

    with PeriodicTasks() as phases:
        phases.every(LONG_S, late)
        phases.every(LONG_S, late, 0.5)
        phases.every(LONG_S, soon, 0.0)
        async with asyncio.timeout(5):
            await done.wait()
    assert ran == ["soon"]
