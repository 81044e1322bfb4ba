"""Search of matrices: merged postings equal a brute-force search, whatever the sizes of the matrices."""

import math
import operator
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.discovery import matrix_search
from service.discovery.cell_rounds import find_or_create_matrix
from service.discovery.matrix import CellAddress, MatrixLimits, ResizeKind, ResizeRequest, after_request, head_address
from service.discovery.matrix_cell import UpdateMatrix
from service.discovery.matrix_registration import register, withdraw
from service.discovery.matrix_resizing import reconcile_matrix
from service.discovery.matrix_search import PairClause, PairQuery, search
from service.discovery.postings import Posting
from tests.support.memory_cells import MemoryCells

PAIRS = ("a=1", "b=2", "c=3", "d=4", "e=5")
LIMITS = MatrixLimits(partitions=8, replicas=4)
EXPIRES_S = 1000

names = st.dictionaries(
    st.integers(0, 2**64 - 1), st.dictionaries(st.sampled_from(PAIRS), st.integers(1, 255)), max_size=60
)
clauses = st.lists(
    st.dictionaries(st.sampled_from(PAIRS), st.sampled_from((1.0, 0.5, 0.25)), min_size=1, max_size=3),
    min_size=1,
    max_size=3,
)


def importance(_: int, frequencies: Sequence[int]) -> float:
    return math.log1p(1000 / (1 + sum(frequencies)))


@pytest.fixture(autouse=True, params=[False, True])
def _look_names_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read matrices whole, or look up names in all but the smallest."""
    if request.param:
        monkeypatch.setattr(matrix_search, "_ALWAYS_WHOLE", 2)
        monkeypatch.setattr(matrix_search, "_POSTINGS_PER_LOOKUP", 0.01)
        monkeypatch.setattr(matrix_search, "FIRST_POSTINGS", 5)
        monkeypatch.setattr(matrix_search, "_SAMPLING_STEP", 2)


@settings(max_examples=100, deadline=None)
@given(
    names,
    clauses,
    st.sets(st.sampled_from(PAIRS), max_size=1),
    st.lists(st.sampled_from(PAIRS), max_size=6),
    st.tuples(st.integers(1, 70), st.integers(0, 2**48), st.lists(st.booleans(), min_size=3, max_size=3)),
)
@example(
    names={0: {}, 1: {}, 3: {"a=1": 1, "b=2": 1}},
    clauses=[{"a=1": 1.0, "b=2": 1.0}],
    excluded={"a=1"},
    growths=["a=1"],
    how=(1, 0, [False, False, False]),
)
@example(
    names={0: {}, 2: {}, 4: {}, 1: {"a=1": 1}, 3: {"d=4": 1}},
    clauses=[{"a=1": 1.0, "d=4": 1.0}],
    excluded=set(),
    growths=["d=4"],
    how=(1, 0, [False, False, False]),
)
def test_a_merged_search_equals_a_brute_force_search(
    names: dict[int, dict[str, int]],
    clauses: list[dict[str, float]],
    excluded: set[str],
    growths: list[str],
    how: tuple[int, int, list[bool]],
) -> None:
    most, draw, optional = how
    cells = MemoryCells()
    for pair in growths[::2]:
        grow(cells, pair)
    for name, pairs in names.items():
        for pair, weight in pairs.items():
            cells.run(register(pair, Posting(name, weight, EXPIRES_S)))
        for pair in set(PAIRS[:2]) - set(pairs):
            cells.run(register(pair, Posting(name, 7, EXPIRES_S - 1)))
            cells.run(withdraw(pair, Posting(name, 0, EXPIRES_S - 1)))
    for pair in growths[1::2]:
        grow(cells, pair)
    asked = [PairClause(tuple(each.items()), own) for each, own in zip(clauses, optional, strict=False)]
    query = PairQuery(asked, excluded, most, importance)
    alternatives = [each for each, own in zip(clauses, optional, strict=False) if own]
    needed = [each for each, own in zip(clauses, optional, strict=False) if not own]
    needed += [dict(each for own in alternatives for each in own.items())] if alternatives else []
    found = cells.run(search(query, draw, 0.0, {}, {}))
    expected = {
        name: [max(factor * pairs.get(pair, 0) for pair, factor in each.items()) for each in clauses]
        for name, pairs in names.items()
        if all(each.keys() & pairs for each in needed) and not excluded & pairs.keys()
    }
    own = found.names.tolist()
    assert found.weights.tolist() == [expected[name] for name in own]
    assert len(own) == len(set(own)) == min(most, found.total)
    if not alternatives:
        assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)
    if found.complete:
        assert found.total == len(expected)
        importances = [importance(0, [found.frequencies[pair] for pair in each]) for each in clauses]
        scores = [sum(map(operator.mul, weights, importances)) for weights in expected.values()]
        best = sorted(scores, reverse=True)[:most]
        if not alternatives or most >= len(expected):
            assert sorted(found.scores.tolist(), reverse=True) == pytest.approx(best)
    else:
        assert found.total >= most


def grow(cells: MemoryCells, pair: str) -> None:
    """Double the partitions of a matrix."""
    matrix = cells.run(find_or_create_matrix(pair, LIMITS))
    last = CellAddress(pair, matrix.size.partitions - 1)
    after = after_request(matrix, ResizeRequest(ResizeKind.INC_P, last), LIMITS)
    cells.carry_out(UpdateMatrix(head_address(pair), matrix, after))
    assert cells.run(reconcile_matrix(pair, LIMITS)) is not None


def test_names_that_satisfy_more_optional_clauses_come_first() -> None:
    cells = MemoryCells()
    for name, pairs in {1: {"a=1": 255}, 2: {"a=1": 9, "b=2": 9}, 3: {"c=3": 255}, 4: {"b=2": 255}}.items():
        for pair, weight in pairs.items():
            cells.run(register(pair, Posting(name, weight, EXPIRES_S)))
    asked = [PairClause(((pair, 1.0),), is_optional=True) for pair in ("a=1", "b=2")]
    found = cells.run(search(PairQuery(asked, (), 9, importance), 0, 0.0, {}, {}))
    assert found.names.tolist()[0] == 2
    assert sorted(found.names.tolist()) == [1, 2, 4]


def test_the_best_names_of_a_frequent_pair_follow_those_of_a_rare_one() -> None:
    """Names with the same coverage are sorted by weight, and those with the same weight by name."""
    cells = MemoryCells()
    weights = {name: {"a=1": name * 7 % 11 + 1} for name in range(500)} | {7: {"b=2": 3}, 400: {"a=1": 1, "b=2": 3}}
    for name, pairs in weights.items():
        for pair, weight in pairs.items():
            cells.run(register(pair, Posting(name, weight, EXPIRES_S)))
    asked = [PairClause(((pair, 1.0),), is_optional=True) for pair in ("a=1", "b=2")]
    found = cells.run(search(PairQuery(asked, (), 20, importance), 0, 0.0, {}, {}))
    others = sorted(weights.keys() - {7, 400}, key=lambda name: (-weights[name]["a=1"], name))
    assert found.names.tolist() == [400, 7, *others[:18]]
    assert not found.complete


def test_weights_of_required_pairs_count_among_the_names_of_a_frequent_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds if the matrices of the required pairs are small enough to be read whole."""
    monkeypatch.setattr(matrix_search, "_ALWAYS_WHOLE", 1_000)
    cells = MemoryCells()
    weights = {name: {"a=1": name // 100 + 1, "c=3": 255 - name // 4} for name in range(500)}
    weights |= {name: {"c=3": 255} for name in range(500, 600)} | {600: {"b=2": 3, "c=3": 9}}
    for name, pairs in weights.items():
        for pair, weight in pairs.items():
            cells.run(register(pair, Posting(name, weight, EXPIRES_S)))
    optional = [PairClause(((pair, 1.0),), is_optional=True) for pair in ("a=1", "b=2")]
    asked = [*optional, PairClause((("c=3", 1.0),))]
    found = cells.run(search(PairQuery(asked, (), 20, lambda *_: 1.0), 0, 0.0, {}, {}))
    assert found.names.tolist() == sorted(range(500), key=lambda name: (-sum(weights[name].values()), name))[:20]


def test_a_name_that_satisfies_all_clauses_is_found_although_it_satisfies_some_poorly() -> None:
    cells = MemoryCells()
    whole = {0: {"a=1": 9, "b=2": 9, "d=4": 9}}
    partly = {name: {"c=3": 9} for name in range(1, 30)} | {name: {"d=4": 9} for name in range(30, 70)}
    for name, pairs in {**whole, **partly}.items():
        for pair, weight in pairs.items():
            cells.run(register(pair, Posting(name, weight, EXPIRES_S)))
    grow(cells, "d=4")
    alternatives = ((("a=1", 0.1),), (("b=2", 0.1), ("c=3", 1.0)), (("d=4", 1.0),))
    asked = [PairClause(each, is_optional=True) for each in alternatives]
    found = cells.run(search(PairQuery(asked, (), 2, importance), 0, 0.0, {}, {}))
    assert found.names.tolist()[0] == 0


def test_a_search_of_a_matrix_whose_cells_are_all_lost_is_complete() -> None:
    cells = MemoryCells()
    cells.run(register("a=1", Posting(1, 9, EXPIRES_S)))
    grow(cells, "a=1")
    known = cells.run(search(PairQuery([PairClause((("a=1", 1.0),))], (), 9, importance), 0, 0.0, {}, {})).sizes
    for place in list(cells.places_of("a=1")):
        cells.lose(place)
    for draw in range(4):
        found = cells.run(search(PairQuery([PairClause((("a=1", 1.0),))], (), 9, importance), draw, 0.0, known, {}))
        assert (found.names.tolist(), found.complete) == ([], True)
