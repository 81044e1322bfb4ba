"""What a worker does when the kernel tells it that another one of its machine has died."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from service.model import NodeInfo
from service.overlay.joining import balanced_id
from service.store import Store
from tests.support.waiting import until, until_so
from workers.tasks import Tasks
from workers.witness import Witness, process_of

LEASE_S = 60.0


@pytest_asyncio.fixture
async def other() -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process of this machine."""
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest_asyncio.fixture
async def witness(store: Store) -> AsyncIterator[Witness]:
    tasks = Tasks()
    witness = Witness(store, tasks)
    yield witness
    witness.close()
    await tasks.cancel()


async def _join(store: Store, process: str) -> NodeInfo:
    return await store.ring.join("a worker", "", LEASE_S, balanced_id, process)


async def _left(store: Store, *staying: NodeInfo) -> None:
    async def alone() -> bool:
        return await store.ring.view() == sorted(staying, key=lambda info: info.id)

    await until(alone, "the dead have left")


async def test_the_nodes_of_a_killed_process_leave_at_once_and_others_are_woken(
    store: Store, witness: Witness, other: asyncio.subprocess.Process
) -> None:
    mine = await _join(store, process_of(os.getpid()))
    for _ in range(2):
        await _join(store, process_of(other.pid))
    woken: list[bool] = []
    with witness.waking(lambda: woken.append(True)):
        witness.look(await store.ring.look())
        other.kill()
        await _left(store, mine)
        await until_so(lambda: woken, "the living look at the ring")
    assert woken == [True]


async def test_who_was_dead_before_anybody_looked_leaves_too(
    store: Store, witness: Witness, other: asyncio.subprocess.Process
) -> None:
    dead = process_of(other.pid)
    other.kill()
    await other.wait()
    mine, _ = await _join(store, ""), await _join(store, dead)
    witness.look(await store.ring.look())
    await _left(store, mine)


async def test_a_process_that_has_got_a_dead_ones_number_is_not_taken_for_it(
    store: Store, witness: Witness, other: asyncio.subprocess.Process
) -> None:
    earlier = process_of(other.pid).rpartition(":")[0] + ":1"
    mine, _ = await _join(store, process_of(other.pid)), await _join(store, earlier)
    witness.look(await store.ring.look())
    await _left(store, mine)


@pytest.mark.parametrize("process", ["", "another boot:4026531836:1:1"])
async def test_nobody_is_judged_from_another_machine(
    store: Store, witness: Witness, other: asyncio.subprocess.Process, process: str
) -> None:
    elsewhere = await _join(store, process)
    here = await _join(store, process_of(other.pid))
    witness.look(await store.ring.look())
    other.kill()
    await _left(store, elsewhere)
    assert here.id not in {info.id for info in await store.ring.view()}


async def test_who_has_left_is_watched_no_more(
    store: Store, witness: Witness, other: asyncio.subprocess.Process
) -> None:
    here = await _join(store, process_of(other.pid))
    witness.look(await store.ring.look())
    before = _open_files()
    await store.ring.leave(here)
    witness.look(await store.ring.look())
    assert _open_files() == before - 1


def test_a_process_has_a_name_until_it_is_gone() -> None:
    assert process_of(os.getpid()) == process_of(os.getpid())
    assert process_of(1 << 30) == ""


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
