"""Matrix cells on Redis behave as the in-memory ones, for any commands in any order."""

import asyncio
import random
import time
from collections.abc import Sequence

import pytest

from service.discovery import cell
from service.discovery.cell import CellAnswer, CellState, Command, NameRecord
from service.discovery.matrix import CellAddress, Matrix, MatrixSize, head_address
from service.store import Store
from service.store.client import keys
from service.store.directory.cells import pair_key
from tests.support.memory_cells import MemoryCells
from tests.support.waiting import until

FAR_MS = int(time.time() * 1000) + 3_600_000
HOT = pair_key("lang=en")
PAIRS = (HOT, *(pair_key(f"tag={n}") for n in range(12)))
PLACES = (head_address(HOT), CellAddress(HOT, 1, 0))


def record(drawn: random.Random, names: int) -> NameRecord:
    pairs = frozenset({HOT, *drawn.sample(PAIRS, drawn.randrange(4))}) if drawn.random() < 0.9 else frozenset()
    return NameRecord(f"n{drawn.randrange(names)}", drawn.randrange(1, 4), pairs, FAR_MS + drawn.randrange(3))


def records(drawn: random.Random, names: int) -> tuple[NameRecord, ...]:
    made = (record(drawn, names) for _ in range(drawn.choice((1, 1, 40))))
    return tuple({one.name: one for one in made}.values())


def command(drawn: random.Random, names: int, memory: MemoryCells) -> Command:
    place = drawn.choice(PLACES)
    size = MatrixSize(drawn.randrange(1, 6), drawn.randrange(1, 3))
    held = list(memory.records.get(place, {}).values())
    matrix = memory.matrices.get(place)
    chances: Sequence[tuple[int, Command]] = (
        (8, cell.PutRecords(place, records(drawn, names), drawn.random() < 0.2, drawn.choice((None, size)))),
        (8, cell.FindNames(place, frozenset(drawn.sample(PAIRS, drawn.randrange(4))) | {HOT}, drawn.choice((1, 10,
        1000)))), (1, cell.ReadState(place)),
        (1, cell.ExpireNames(place)),
        (1, cell.SetSize(place, size)),
        (1, cell.OpenCell(place, size)),
        (1, cell.MarkFilled(place, size.epoch)),
        (1, cell.CloseCell(place, size, keep=drawn.random() < 0.8)),
        (1, cell.FetchRecords(place, f"n{drawn.randrange(names)}", drawn.choice((1, 50)))),
        (2, cell.DropRecords(place, tuple(drawn.sample(held, min(len(held), drawn.randrange(30)))))),
        (1, cell.UpdateMatrix(place, drawn.choice((matrix, None)), Matrix(size), drawn.choice(tuple(CellState)))),
    )  # fmt: skip
    return drawn.choices([each for _, each in chances], [weight for weight, _ in chances])[0]


def agree(asked: Command, answer: CellAnswer, expected: CellAnswer, memory: MemoryCells) -> None:
    assert (answer.member, answer.done) == (expected.member, expected.done), asked
    assert answer.load.names == expected.load.names, asked
    assert answer.records == expected.records, asked
    if isinstance(asked, cell.ReadState | cell.ExpireNames | cell.UpdateMatrix):
        assert answer.matrix == expected.matrix, asked
    if isinstance(asked, cell.FindNames):
        everything = (
            memory.carry_out(cell.FindNames(asked.place, asked.pairs, 10_000)).matches if expected.member else ()
        )
        assert len(answer.matches) == len(expected.matches), asked
        assert {(one.name, one.version) for one in answer.matches} <= {(one.name, one.version) for one in everything}


@pytest.mark.parametrize("names", [5, 300])
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.storms) for seed in range(4, 100))])
async def test_a_cell_on_redis_matches_the_model_in_memory(store: Store, seed: int, names: int) -> None:
    drawn, memory = random.Random(seed), MemoryCells()  # noqa: S311 - the same history each time
    for _ in range(150):
        asked = command(drawn, names, memory)
        (answer,) = await store.matrix_cells.carry_out([asked])
        agree(asked, answer, memory.carry_out(asked), memory)


async def opened(store: Store, place: CellAddress) -> None:
    await store.matrix_cells.carry_out([cell.UpdateMatrix(place, None, Matrix())])


async def test_a_cell_finds_exactly_the_names_with_all_pairs(store: Store) -> None:
    place, drawn = head_address(HOT), random.Random(1)  # noqa: S311 - the same names each time
    tags = [pair_key(f"tag={n}") for n in range(400)]
    records = [
        NameRecord(f"name {n}", 1, frozenset({HOT, *drawn.sample(tags, 8)}), FAR_MS) for n in range(2_000)
    ]  # fmt: skip
    await opened(store, place)
    for first in range(0, len(records), 100):
        await store.matrix_cells.carry_out([cell.PutRecords(place, tuple(records[first : first + 100]))])
    for count in (1, 2, 3):
        asked = [frozenset(drawn.sample(tags, count)) for _ in range(50)]
        asked.append(frozenset(drawn.sample(sorted(records[7].pairs), count)))
        answers = await store.matrix_cells.carry_out([cell.FindNames(place, pairs, 10_000) for pairs in asked])
        for pairs, answer in zip(asked, answers, strict=True):
            assert {one.name for one in answer.matches} == {each.name for each in records if pairs <= each.pairs}


async def test_expired_names_are_not_found_and_are_deleted(store: Store) -> None:
    place = head_address(HOT)
    await opened(store, place)
    soon_ms = int(time.time() * 1000) + 300
    brief = tuple(NameRecord(f"brief {n}", 1, frozenset({HOT, PAIRS[1]}), soon_ms) for n in range(200))
    lasting = NameRecord("lasting", 1, frozenset({HOT, PAIRS[1]}), FAR_MS)
    await store.matrix_cells.carry_out([cell.PutRecords(place, (*brief, lasting))])

    async def alone() -> bool:
        (answer,) = await store.matrix_cells.carry_out([cell.FindNames(place, frozenset({PAIRS[1]}), 1000)])
        return [one.name for one in answer.matches] == ["lasting"]

    await until(alone, "what expired is found no more")

    async def swept() -> bool:
        (answer,) = await store.matrix_cells.carry_out([cell.PutRecords(place, (lasting,))])
        return answer.load.names == 1

    await until(swept, "what expired is swept away by those that come")
    assert await store.redis.call("HLEN", keys.cell(place)[1]) == 1
    assert await alone()


async def test_a_cell_that_is_not_refreshed_expires(store: Store) -> None:
    place = head_address(HOT)
    await opened(store, place)
    many = tuple(NameRecord(f"n{n}", 1, frozenset({HOT, *PAIRS[1:4]}), FAR_MS) for n in range(400))
    await store.matrix_cells.carry_out([cell.PutRecords(place, many)])
    left = await store.redis.call_many([("PTTL", key) for key in keys.cell(place)])
    assert all(3_600_000 < ms < 2 * 86_400_000 for ms in left)


async def test_concurrent_updates_of_a_matrix_change_it_once(store: Store) -> None:
    place = head_address(HOT)
    await opened(store, place)
    wanted = [Matrix(MatrixSize(2, n)) for n in range(1, 11)]
    asked = [cell.UpdateMatrix(place, Matrix(), each) for each in wanted]
    answers = await asyncio.gather(*(store.matrix_cells.carry_out([one]) for one in asked))
    assert sum(answer.done for (answer,) in answers) == 1
    assert len({answer.matrix for (answer,) in answers}) == 1


async def test_copied_records_do_not_count_as_registrations(store: Store) -> None:
    place = head_address(HOT)
    many = tuple(NameRecord(f"n{n}", 1, frozenset({HOT}), FAR_MS) for n in range(20))
    await opened(store, place)
    for believes in (None, MatrixSize()):
        began_ms = int(time.time() * 1000) - 2_000
        await store.redis.call("HSET", keys.cell(place)[0], "w", f"0 {began_ms} 0 0")
        (answer,) = await store.matrix_cells.carry_out([cell.PutRecords(place, many, assumed_size=believes)])
        assert (0 < answer.load.registrations_s < 11) is (believes is not None)


async def test_a_cell_reports_its_query_rate(store: Store) -> None:
    place = head_address(HOT)
    await opened(store, place)
    *_, answer = await store.matrix_cells.carry_out([cell.FindNames(place, frozenset({HOT}), 1)] * 50)
    assert answer.load.queries_s == 0.0, "a moment is no rate"
    now_ms = int(time.time() * 1000)
    await store.redis.call("HSET", keys.cell(place)[0], "q", f"19 {now_ms - 2_000} 30 {now_ms - 5_000}")
    (answer,) = await store.matrix_cells.carry_out([cell.FindNames(place, frozenset({HOT}), 1)])
    assert 8 < answer.load.queries_s < 12, "20 in the window that ended just now, which had begun 2 s before"
    assert answer.load.registrations_s == 0.0
