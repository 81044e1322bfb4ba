"""Processes that stop answering without dying, under traffic: guarantees I1-I5 hold when they go on.

Each is held for longer than the trial's leases last (4 s), so that others take over from one who is alive.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from tests.support.product_traffic import entries_coming, traffic, until_told_something_new

pytestmark = pytest.mark.faults


@contextlib.asynccontextmanager
async def stopped(pids: Collection[int], for_s: float) -> AsyncIterator[None]:
    """Stop processes for some time (the fault), then continue them."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(for_s)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(300)
async def test_stalls_of_worker_bot_and_redis_lose_repeat_and_misdirect_nothing(tmp_path: Path) -> None:
    async with traffic(tmp_path) as live:
        await live.publish_once()
        await live.subscribe_all()
        async with entries_coming(live):
            await until_told_something_new(live)
            async with stopped(live.product.pids("workers")[:1], for_s=10):
                await until_told_something_new(live)
            await live.last_one_leaves_a_feed()
            for kind, for_s in (("bot", 10), ("redis", 8)):
                async with stopped(live.product.pids(kind), for_s):
                    pass
                await until_told_something_new(live)
        verdict = await live.settle()
        assert verdict.broken == {}, str(verdict)
        assert verdict.owed > 0
