"""Kill -9 of every kind of process, under traffic, and of all at once: guarantees I1-I5 hold."""

from pathlib import Path

import pytest

from tests.support.product_traffic import entries_coming, traffic, until_told_something_new

pytestmark = pytest.mark.faults

KINDS = ("worker", "bot", "console", "redis", "prosody")
READY_KEYS = {"worker": "workers"}


@pytest.mark.timeout(300)
async def test_killing_each_kind_of_process_loses_repeats_and_misdirects_nothing(tmp_path: Path) -> None:
    async with traffic(tmp_path) as live:
        await live.publish_once()
        await live.subscribe_all()
        async with entries_coming(live):
            for kind in KINDS:
                victims = live.product.pids(READY_KEYS.get(kind, kind))
                await live.product.kill(READY_KEYS.get(kind, kind), only=victims[:1])
                await until_told_something_new(live)
            await live.last_one_leaves_a_feed()
            await until_told_something_new(live)
        verdict = await live.settle()
        assert verdict.broken == {}, str(verdict)
        assert verdict.owed > 0


@pytest.mark.timeout(300)
async def test_killing_all_processes_loses_repeats_and_misdirects_nothing(tmp_path: Path) -> None:
    async with traffic(tmp_path) as live:
        await live.publish_once()
        await live.subscribe_all()
        async with entries_coming(live):
            await until_told_something_new(live)
            await live.last_one_leaves_a_feed()
            await live.product.kill("redis", "prosody", "bot", "workers", "console")
            await until_told_something_new(live)
            await live.product.crash()
            await live.product.start()
            await until_told_something_new(live)
        verdict = await live.settle()
        assert verdict.broken == {}, str(verdict)
        assert verdict.owed > 0


@pytest.mark.timeout(300)
async def test_crashes_and_stops_of_a_single_process_lose_repeat_and_misdirect_nothing(tmp_path: Path) -> None:
    """Worker, bot and console are one process, which is killed while it works, stopped, and started again."""
    async with traffic(tmp_path, "--small") as live:
        await live.publish_once()
        await live.subscribe_all()
        async with entries_coming(live):
            for end in (live.product.crash, live.product.stop, live.product.crash):
                await until_told_something_new(live)
                await end()
                await live.product.start()
            for kind in ("redis", "prosody"):
                await live.product.kill(kind)
                await until_told_something_new(live)
            await live.last_one_leaves_a_feed()
            await until_told_something_new(live)
        verdict = await live.settle()
        assert verdict.broken == {}, str(verdict)
        assert verdict.owed > 0
