"""Where a name goes, and that all replicas come to have it."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.discovery.cell import Find, Lead, Record
from service.discovery.head import Request, asked
from service.discovery.load import Kind, Limits
from service.discovery.matrix import Place, Size, head_of, home, homes
from service.discovery.placing import goes_to, place
from service.discovery.sizing import led
from service.discovery.upkeep import upkeep
from tests.support.cells import MemoryCells

PAIR = "a=1"
LIMITS = Limits(partitions=8, replicas=4)
NAME = Record("n", 1, frozenset({PAIR}), 1000)
DRAWS = (2, 5)
"""At home in partitions 2 and 5 of eight; before, in 2 and 1 of four, and in 0 and 1 of two."""


def grown(*kinds: Kind) -> MemoryCells:
    """Return cells in which a matrix has grown so often."""
    cells = MemoryCells()
    for kind in kinds:
        matrix = cells.lead(led(PAIR, LIMITS))
        last = Place(PAIR, matrix.size.partitions - 1, matrix.size.replicas - 1)
        cells.carry_out(Lead(head_of(PAIR), matrix, asked(matrix, Request(kind, last), LIMITS)))
        assert cells.lead(upkeep(PAIR, LIMITS)) is not None
    return cells


@pytest.mark.parametrize(
    ("lies", "carries", "crowded", "partition"),
    [
        ({}, {2: 0.9, 5: 0.3}, 0.5, 5),
        ({2: 1}, {2: 0.4, 5: 0.0}, 0.5, 2),
        ({2: 1}, {2: 0.9, 5: 0.5}, 0.5, 2),
        ({2: 1}, {2: 0.9, 5: 0.4}, 0.5, 5),
        ({2: 1}, {2: 0.9, 5: 0.4}, inf, 2),
        ({1: 1}, {2: 0.9, 5: 0.8, 1: 0.4}, 0.5, 1),
        ({1: 1}, {2: 0.9, 5: 0.8, 1: 0.9}, 0.5, 5),
        ({2: 1, 5: 2}, {2: 0.1, 5: 0.4}, 0.5, 5),
        ({2: 2, 5: 2}, {2: 0.3, 5: 0.4}, 0.5, 2),
    ],
    ids=[
        "a new name goes to the lighter of its two",
        "what lies anywhere stays",
        "even where it is crowded, if the other carries more than half as much",
        "it leaves for one with half as many",
        "unless it changes",
        "what lies where the present size does not put it stays",
        "and leaves as soon as that is crowded",
        "of two copies the later refreshed one counts",
        "or the one with more room",
    ],
)
def test_where_a_name_goes(lies: dict[int, int], carries: dict[int, float], crowded: float, partition: int) -> None:
    carried = dict.fromkeys(homes(DRAWS, 8), 0.0) | carries
    assert goes_to(DRAWS, 8, lies, carried, crowded) == partition


@given(data=st.data(), draws=st.tuples(*[st.integers(0, 2**32 - 1)] * 2), partitions=st.integers(1, 64))
def test_a_name_that_was_refreshed_is_refreshed_there_again(
    data: st.DataObject, draws: tuple[int, int], partitions: int
) -> None:
    own = homes(draws, partitions)
    carries = {partition: data.draw(st.floats(0, 3)) for partition in own}
    lies = data.draw(st.dictionaries(st.sampled_from(own), st.integers(1, 3)))
    at = goes_to(draws, partitions, lies, carries)
    assert at in own
    assert goes_to(draws, partitions, lies | {at: 4}, carries) == at


@given(draws=st.tuples(*[st.integers(0, 2**32 - 1)] * 2))
def test_new_names_are_at_one_of_two_places(draws: tuple[int, int]) -> None:
    assert goes_to(draws, 8, {}, dict.fromkeys(homes(draws, 8), 0.5)) in {home(draw, 8) for draw in draws}


def test_whoever_refreshes_a_name_finds_it_whatever_size_is_remembered() -> None:
    cells = grown(Kind.INC_P, Kind.INC_P, Kind.INC_P)
    at = cells.lead(place(PAIR, NAME, DRAWS, LIMITS))
    for known in (None, Size(), Size(1), at.size):
        assert cells.lead(place(PAIR, NAME, DRAWS, LIMITS, known)) == at
    assert [where.partition for where, held in cells.records.items() if NAME.name in held] == [at.partition]


def test_a_replica_that_opens_while_a_name_is_registered_has_it_too() -> None:
    """It was absent when it was asked; it was filled, and opened, before the others had the name."""
    cells = grown(Kind.INC_R)
    lost = Place(PAIR, 0, 1)
    cells.lose(lost)
    dialogue = place(PAIR, NAME, DRAWS, LIMITS, cells.lead(led(PAIR, LIMITS)).size)
    first, second = next(dialogue)
    assert second.place == lost
    refused = cells.carry_out(second)
    assert cells.lead(upkeep(PAIR, LIMITS)) is not None
    (again,) = dialogue.send([cells.carry_out(first), refused])
    with pytest.raises(StopIteration):
        dialogue.send([cells.carry_out(again)])
    for row in range(2):
        found = cells.carry_out(Find(Place(PAIR, 0, row), frozenset({PAIR}), 9)).matches
        assert [match.name for match in found] == [NAME.name], f"replica {row}"
