"""Upkeep of matrices: load reported by processes that only ask resizes them, and lost cells are restored."""

import asyncio
import time

import pytest

from service.discovery.matrix import MatrixLimits, head_address
from service.discovery.matrix_cell import CellState
from service.discovery.search_candidates import require_all
from service.store import Store
from service.store.client import keys
from service.store.directory.cell_load_reports import ReportedCell
from service.store.directory.matrix_balancer import MatrixBalancer, NodeLoads
from service.store.directory.matrix_directory import ContentName, Directory

EXPIRES_S = time.time() + 86_400.0
PAIR = "lang=en"
SMALL = MatrixLimits(names=20, registrations_s=1e9, queries_s=100.0, partitions=8, replicas=4)


def names(count: int) -> list[ContentName]:
    return [ContentName(f"name{n:03}", {PAIR: 1, f"word=w{n}": 1}) for n in range(count)]


async def found(directory: Directory) -> int:
    return len((await directory.find(require_all([PAIR]), (), 1_000)).found)


def asking(store: Store) -> Directory:
    """Return a directory as another process has it."""
    return Directory(store.channel_directory._redis, store.matrix_cells, "channel", SMALL)


async def passed(balancer: MatrixBalancer, passes: int = 40) -> None:
    for _ in range(passes):
        await balancer.maintain(lambda _: True)


async def measured(store: Store) -> NodeLoads:
    """Return the loads of nodes after a first reading; they have no load before it."""
    loads = NodeLoads(store.redis)
    await loads.read()
    loads._busy = dict.fromkeys(store.redis.primaries(), 0.0)
    return loads


async def report_queries(directory: Directory, queries_s: float) -> None:
    """Report queries of a process that has sent this many to each cell of the matrix."""
    for place, _ in await directory.cells_of(PAIR):
        field = f"{place.partition} {place.replica} {PAIR}"
        (now_ms, _) = await directory._redis.run_script("matrix_read_load", (keys.matrix_loads("channel"),))
        value = f"{queries_s * 10} 0 0 {int(now_ms)}"
        await directory._redis.call("HSET", keys.matrix_loads("channel"), field, value)


async def test_load_that_a_process_reports_is_read_by_others(store: Store) -> None:
    asker, other = asking(store), asking(store)
    await asker.register(names(3), EXPIRES_S)
    await asyncio.gather(*(asker.find(require_all([PAIR]), (), 2) for _ in range(100)))
    await asyncio.gather(asker.load_reports.flush(), *asker.load_reports._sending)
    loads = await other.load_reports.read()
    assert loads[ReportedCell(PAIR, 0, 0)].queries_s == pytest.approx(10, rel=0.2)
    assert ReportedCell("word=w1", 0, 0) not in loads, "cells that are rarely asked are not reported"


async def test_reported_queries_add_replicas_only_on_other_primaries(store: Store) -> None:
    directory, other = asking(store), asking(store)
    await directory.register(names(5), EXPIRES_S)
    await found(other)
    balancer = MatrixBalancer(directory, await measured(store))
    for _ in range(4):
        await report_queries(directory, 200.0)
        await balancer.maintain(lambda _: True)
    size = (await directory.matrix_sizes()).get(PAIR)
    primaries = store.redis.primaries()
    if not primaries:
        assert size is None, "on one Redis, replicas would only add writes"
        return
    assert size is not None
    nodes = [store.redis.node_of(("GET", keys.cell(place)[0])) for place, _ in await directory.cells_of(PAIR)]
    assert set(nodes) == set(primaries)
    assert len(nodes) == len(primaries)
    assert await found(other) == await found(directory) == 5
    await directory.load_reports.forget(list(await directory.load_reports.read()))
    await passed(balancer)
    assert PAIR not in await directory.matrix_sizes()
    assert await found(other) == 5


async def test_any_lost_cell_is_restored(store: Store) -> None:
    directory = asking(store)
    for first in range(0, 300, 30):
        await directory.register(names(300)[first : first + 30], EXPIRES_S)
        await passed(MatrixBalancer(directory, store.redis_node_loads), 3)
    balancer = MatrixBalancer(directory, store.redis_node_loads)
    await passed(balancer)
    cells = [place for place, _ in await directory.cells_of(PAIR)]
    assert len(cells) == 8
    for place in (cells[5], head_address(directory.key(PAIR))):
        for key in keys.cell(place):
            await store.redis.call("DEL", key)
        await passed(balancer, 10)
        restored = dict(await directory.cells_of(PAIR))
        assert len(restored) == 8
        assert all(answer.is_in(CellState.OPEN) for answer in restored.values())
    await directory.register(names(300), EXPIRES_S)
    assert await found(asking(store)) == 300


async def test_a_lost_list_of_matrices_is_written_again(store: Store) -> None:
    directory = asking(store)
    balancer = MatrixBalancer(directory, store.redis_node_loads)
    await directory.register(names(60), EXPIRES_S)
    await passed(balancer, 10)
    sizes = await directory.matrix_sizes()
    assert sizes[PAIR].partitions > 1
    await store.redis.call("DEL", keys.matrix_sizes("channel"))
    await passed(balancer, 1)
    assert (await directory.matrix_sizes()).keys() == sizes.keys()


async def test_only_the_worker_that_owns_a_pair_resizes_its_matrix(store: Store) -> None:
    directory = asking(store)
    await directory.register(names(60), EXPIRES_S)
    await directory.load_reports.flush()
    assert await MatrixBalancer(directory, store.redis_node_loads).maintain(lambda _: False) == 0
    assert PAIR not in await directory.matrix_sizes()
    assert await MatrixBalancer(directory, store.redis_node_loads).maintain(lambda pair: pair == PAIR) == 1
    assert (await directory.matrix_sizes())[PAIR].partitions == 2
