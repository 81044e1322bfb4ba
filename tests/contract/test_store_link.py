"""What every use of the link relies on."""

import asyncio
from itertools import repeat

import pytest

from service.settings import Settings
from service.store.link import Link


@pytest.mark.parametrize("steps", range(24))
async def test_a_command_that_is_cancelled_ends_cancelled_at_whatever_step_it_was(redis_url: str, steps: int) -> None:
    link = Link(Settings(redis_url=redis_url))
    command = asyncio.create_task(link.call("GET", "nothing"))
    for _ in repeat(None, steps):
        await asyncio.sleep(0)
    too_late = command.done()
    command.cancel()
    await asyncio.wait([command])
    assert command.cancelled() != too_late
    await link.close()
