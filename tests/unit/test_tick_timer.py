"""The timer of periodic tasks: which tasks wake up together, and how often."""

import asyncio
from collections import Counter

import pytest

from service.settings import Settings
from service.tick_timer import TickTimer, create_tick_timer

TICK_S = 0.005


async def test_tasks_with_different_intervals_wake_up_at_shared_ticks() -> None:
    timer, woken, done = TickTimer(TICK_S), list[list[int]](), asyncio.Event()
    together: list[int] = []

    def end_iteration() -> None:
        woken.append(sorted(together))
        together.clear()
        if len(woken) == 8:
            done.set()

    async def work(ticks: int) -> None:
        while True:
            await timer.sleep(ticks * TICK_S)
            if not together:
                asyncio.get_running_loop().call_soon(end_iteration)
            together.append(ticks)

    tasks = [asyncio.create_task(each) for each in (timer.run(), work(1), work(2), work(4))]
    async with asyncio.timeout(5):
        await done.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert woken[:8] == [[1], [1, 2], [1], [1, 2, 4]] * 2


async def test_a_cancelled_task_does_not_block_other_tasks() -> None:
    timer, woken = TickTimer(TICK_S), Counter[str]()

    async def work(name: str) -> None:
        await timer.sleep()
        woken[name] += 1

    ticking, cancelled, other = (asyncio.create_task(each) for each in (timer.run(), work("cancelled"), work("other")))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait_for(other, 5)
    ticking.cancel()
    assert woken == {"other": 1}


@pytest.mark.parametrize(("lease_ttl_s", "maintenance_interval_s"), [(6.0, 10.0), (4.0, 5.0), (1.0, 30.0), (60.0, 0.5)])
def test_a_lease_outlasts_three_ticks_and_a_maintenance_interval_is_a_number_of_ticks(
    lease_ttl_s: float, maintenance_interval_s: float
) -> None:
    settings = Settings(lease_ttl_s=lease_ttl_s, maintenance_interval_s=maintenance_interval_s)
    timer = create_tick_timer(settings)
    assert 3 * timer.interval_s <= lease_ttl_s + 1e-6
    ticks = maintenance_interval_s / timer.interval_s
    assert ticks >= 3 - 1e-6
    assert ticks == pytest.approx(round(ticks))
