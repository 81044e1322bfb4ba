"""Kill -9 and standstill of workers that share the fan-out of a large channel: guarantees I1, I2 and I4 hold."""

import asyncio

import pytest

from service.settings import Settings
from service.store import Store, opened
from service.store.client import keys
from tests.support.channels import make_channel, publish
from tests.support.fan_out_worker import FanOutWorker
from tests.support.waiting import until

pytestmark = pytest.mark.faults

PEOPLE = [f"person{number}@localhost" for number in range(400)]
LAST = 4
CONSTANTS = {"CLAIM_S": 0.5, "PAGE_SIZE": 2, "DIVIDE_FROM": 100, "UNIT_SIZE": 12}


async def _in_progress(store: Store, channel_id: str, version: int) -> bool:
    """Return whether some units of this version or a later one are finished, and others are not."""
    fields = await store.redis.call("HGETALL", keys.fanout_units(channel_id))
    return int(fields.get(b"version", 0)) >= version and 4 < len(fields) < 30


async def test_workers_that_die_or_freeze_lose_repeat_and_reorder_nothing(clean_redis: str) -> None:
    async with opened(Settings(redis_url=clean_redis)) as store:
        channel = await make_channel(store)
        await asyncio.gather(*(store.subscriptions.subscribe(jid, channel.id) for jid in PEOPLE))
        for base in range(1, LAST):
            await publish(store, channel, f"entry {base}", base=base)
        names = ("owner", "victim", "successor")
        workers = await asyncio.gather(*(FanOutWorker.start(clean_redis, name, CONSTANTS) for name in names))
        owner, victim, successor = workers
        try:
            running = asyncio.create_task(owner.run(channel.id))
            await until(lambda: _in_progress(store, channel.id, 2), "the second version is being fanned out")
            await victim.kill()
            successor.freeze()
            await until(lambda: _in_progress(store, channel.id, 3), "the third version is being fanned out")
            await owner.kill()
            with pytest.raises(ValueError, match="could not convert"):  # it has not answered
                await running
            successor.thaw()
            await successor.run(channel.id)
        finally:
            for worker in workers:
                await worker.kill()
        queued = await store.outbox.queued_items({keys.user_id(jid): "" for jid in PEOPLE}, 100)
        assert {tuple(each.item.version for each in items) for items in queued} == {tuple(range(2, LAST + 1))}
        (state,) = await store.channels.states([channel.id])
        assert state is not None
        assert (state.fanned_version, state.cursor) == (LAST, "")
