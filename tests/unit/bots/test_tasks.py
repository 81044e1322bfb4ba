"""Whatever is to end ends, though whoever ends it is cancelled again and again meanwhile."""

import asyncio

import pytest

from bots.tasks import end, together


class _Slow:
    """Work that takes its time to end."""

    def __init__(self) -> None:
        self.begun, self.asked, self.may_end, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event(), False

    async def run(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.asked.set()
            await asyncio.shield(self.may_end.wait())
            self.over = True


async def test_all_that_ran_together_ends_though_the_end_is_cancelled_again() -> None:
    first, second = _Slow(), _Slow()
    both = asyncio.create_task(together(first.run(), second.run()))
    await asyncio.gather(first.begun.wait(), second.begun.wait())
    both.cancel()
    await second.asked.wait()
    both.cancel()
    await asyncio.sleep(0)
    first.may_end.set()
    second.may_end.set()
    await asyncio.wait([both])
    assert both.cancelled()
    assert first.asked.is_set(), "it was ended, too"


async def test_what_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bots.tasks.CANCEL_AGAIN_S", 0.01)

    async def deaf() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    await end(task)
    assert task.cancelled()
