"""Matrix cells on Redis behave as the in-memory ones, for any commands in any order."""

import asyncio
import random
import time
from collections.abc import Sequence

import pytest

from service.discovery import matrix_cell
from service.discovery.matrix import CellAddress, Matrix, MatrixSize, head_address
from service.discovery.matrix_cell import CellAnswer, CellState, Command
from service.discovery.postings import Posting, pack, unpack
from service.store import Store
from service.store.client import keys
from service.store.directory.matrix_cells import MatrixCells, pair_key
from tests.support.memory_cells import MemoryCells
from tests.support.waiting import until

FAR_S = int(time.time()) + 3600
HOT = pair_key("lang=en")
PLACES = (head_address(HOT), CellAddress(HOT, 1, 0))


def postings(drawn: random.Random, names: int) -> bytes:
    """Return postings of random names, whose keys are spread over all pages."""
    made = (
        Posting(drawn.randrange(names) * (2**64 // names), drawn.choice((0, 1, 9, 200)), FAR_S + drawn.randrange(3))
        for _ in range(drawn.choice((1, 1, 5, 40)))
    )
    return pack({one.name: one for one in made}.values())


def command(drawn: random.Random, names: int, memory: MemoryCells) -> Command:
    place = drawn.choice(PLACES)
    size = MatrixSize(drawn.randrange(1, 6), drawn.randrange(1, 3))
    held = list(memory.postings.get(place, {}).values())
    matrix = memory.matrices.get(place)
    some = tuple(each.name for each in drawn.sample(held, min(len(held), 3)))
    chances: Sequence[tuple[int, Command]] = (
        (8, matrix_cell.PutPostings(place, postings(drawn, names), drawn.choice((None, size)))),
        (4, matrix_cell.ReadPostings(place, drawn.choice((None, some)))),
        (4, matrix_cell.ReadState(place)),
        (1, matrix_cell.ExpireNames(place)),
        (1, matrix_cell.SetSize(place, size)),
        (1, matrix_cell.OpenCell(place, size)),
        (1, matrix_cell.MarkFilled(place, size.epoch)),
        (1, matrix_cell.CloseCell(place, size, keep=drawn.random() < 0.8)),
        (1, matrix_cell.FetchPostings(place, drawn.choice((-1, drawn.randrange(2**64))), drawn.choice((1, 50)))),
        (2, matrix_cell.DropPostings(place, pack(drawn.sample(held, min(len(held), drawn.randrange(30)))))),
        (
            1,
            matrix_cell.UpdateMatrix(place, drawn.choice((matrix, None)), Matrix(size), drawn.choice(tuple(CellState))),
        ),
    )
    return drawn.choices([each for _, each in chances], [weight for weight, _ in chances])[0]


def agree(asked: Command, answer: CellAnswer, expected: CellAnswer) -> None:
    assert answer.member == expected.member, asked
    if isinstance(asked, matrix_cell.ReadState | matrix_cell.ExpireNames | matrix_cell.UpdateMatrix):
        assert answer.matrix == expected.matrix, asked
        assert answer.load.names == expected.load.names, asked
    if isinstance(asked, matrix_cell.PutPostings | matrix_cell.UpdateMatrix):
        assert answer.done == expected.done, asked
    if isinstance(asked, matrix_cell.FetchPostings):
        assert answer.postings == expected.postings, asked
    if isinstance(asked, matrix_cell.ReadPostings):
        found, wanted = set(unpack(answer.postings or b"")), set(unpack(expected.postings or b""))
        assert found >= wanted, asked
        assert found == wanted or asked.names is not None, asked


@pytest.mark.parametrize("names", [5, 300])
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.storms) for seed in range(4, 100))])
async def test_a_cell_on_redis_matches_the_model_in_memory(store: Store, seed: int, names: int) -> None:
    drawn, memory = random.Random(seed), MemoryCells()  # noqa: S311 - the same history each time
    memory.now_s = FAR_S - 3600
    processes = store.matrix_cells, MatrixCells(store.redis)  # each has its own copies of large cells
    for _ in range(150):
        asked = command(drawn, names, memory)
        (answer,) = await drawn.choice(processes).carry_out([asked])
        agree(asked, answer, memory.carry_out(asked))
        if isinstance(asked, matrix_cell.ReadState) and answer.postings is not None:
            assert set(unpack(answer.postings)) == set(memory.postings.get(asked.place, {}).values()), asked


async def opened(store: Store, place: CellAddress) -> None:
    await store.matrix_cells.carry_out([matrix_cell.UpdateMatrix(place, None, Matrix())])


async def test_a_cell_reads_the_postings_of_some_names_while_its_pages_change(store: Store) -> None:
    place, drawn = head_address(HOT), random.Random(1)  # noqa: S311 - the same names each time
    many = [Posting(drawn.randrange(2**64), 1, FAR_S) for _ in range(3_000)]
    wanted = tuple(each.name for each in many[:3])
    for first in range(0, len(many), 100):
        await store.matrix_cells.carry_out([matrix_cell.PutPostings(place, pack(many[first : first + 100]))])
        (answer,) = await store.matrix_cells.carry_out([matrix_cell.ReadPostings(place, wanted)])
        found = unpack(answer.postings or b"")
        assert set(many[:3]) <= set(found)
    assert len(found) < 500, "only their pages are read"
    (whole,) = await store.matrix_cells.carry_out([matrix_cell.ReadPostings(place)])
    assert sorted(unpack(whole.postings or b"")) == sorted(many)


async def test_adding_postings_deletes_expired_ones(store: Store) -> None:
    place, soon_s = head_address(HOT), int(time.time()) + 2
    brief = pack(Posting(number * 2**55, 1, soon_s) for number in range(200))
    await store.matrix_cells.carry_out([matrix_cell.PutPostings(place, brief + pack([Posting(7, 1, FAR_S)]))])

    async def swept() -> bool:
        again = pack(Posting(number * 2**55, 1, FAR_S) for number in range(0, 200, 40))
        (answer,) = await store.matrix_cells.carry_out([matrix_cell.PutPostings(place, again)])
        return answer.load.names < 50

    await until(swept, "what has expired is deleted")


async def test_the_keys_of_a_cell_expire(store: Store) -> None:
    place = head_address(HOT)
    for number in (1, 400):
        many = pack(Posting(name * 2**50, 1, FAR_S) for name in range(number))
        await store.matrix_cells.carry_out([matrix_cell.PutPostings(place, many)])
        present = [key for key in keys.cell(place) if await store.redis.call("EXISTS", key)]
        assert len(present) == (1 if number == 1 else 2)
        left_s = [await store.redis.call("TTL", key) for key in present]
        assert all(3500 < each < 2 * 86_400 for each in left_s)


async def test_a_small_cell_is_stored_in_a_shared_key(store: Store) -> None:
    place, added = head_address(HOT), list[Posting]()
    for number in range(32):
        added.append(Posting(number * 2**59, 1, FAR_S))
        await store.matrix_cells.carry_out([matrix_cell.PutPostings(place, pack(added[-1:]))])
        (answer,) = await store.matrix_cells.carry_out([matrix_cell.ReadState(place)])
        assert unpack(answer.postings or b"") == added
    shared, own = keys.cell(place)
    assert not await store.redis.call("EXISTS", own)
    assert await store.redis.call("OBJECT", "ENCODING", shared) in (b"listpack", b"ziplist")


async def test_a_large_cell_becomes_small_again(store: Store) -> None:
    place, brief_s = head_address(HOT), int(time.time()) + 1
    many = pack(Posting(name * 2**50, 1, brief_s) for name in range(400))
    await store.matrix_cells.carry_out([matrix_cell.PutPostings(place, many + pack([Posting(5, 1, FAR_S)]))])
    assert await store.redis.call("EXISTS", keys.cell(place)[1])

    async def shrunk() -> bool:
        await store.matrix_cells.carry_out([matrix_cell.ExpireNames(place)])
        return not await store.redis.call("EXISTS", keys.cell(place)[1])

    await until(shrunk, "its hash is deleted")
    (answer,) = await store.matrix_cells.carry_out([matrix_cell.ReadPostings(place)])
    assert unpack(answer.postings or b"") == [Posting(5, 1, FAR_S)]


async def test_concurrent_updates_of_a_matrix_change_it_once(store: Store) -> None:
    place = head_address(HOT)
    await opened(store, place)
    wanted = [Matrix(MatrixSize(2, n)) for n in range(1, 11)]
    asked = [matrix_cell.UpdateMatrix(place, Matrix(), each) for each in wanted]
    answers = await asyncio.gather(*(store.matrix_cells.carry_out([one]) for one in asked))
    assert sum(answer.done for (answer,) in answers) == 1
    assert len({answer.matrix for (answer,) in answers}) == 1
