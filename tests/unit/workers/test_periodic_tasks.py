"""Periodic tasks: when each first runs, and what is logged when they are cancelled."""

import asyncio

import pytest

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


@pytest.mark.parametrize("steps", range(8))
async def test_a_cancelled_task_is_not_logged(caplog: pytest.LogCaptureFixture, steps: int) -> None:
    async def wait() -> None:
        await asyncio.sleep(LONG_S)

    with PeriodicTasks() as periodic:
        periodic.every(LONG_S, wait, 0.0)
        for _ in range(steps):  # until before or after the task begins
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.001)
    assert not caplog.records


async def test_a_failed_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("disk full")

    with PeriodicTasks() as periodic:
        periodic.every(LONG_S, fail, 0.0)
        await asyncio.sleep(0.05)
    assert "disk full" in caplog.text
