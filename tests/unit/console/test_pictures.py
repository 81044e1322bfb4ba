"""Pictures are whole SVGs whatever they are given, and nothing in them is markup of others."""

from math import inf
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.clash.server_table import GroupState
from service.console.charts import Curve, curves_svg, paces_svg, polls_svg
from service.console.formatting import Piece, differences, seconds_in, span
from service.console.pages.directory import Matrix
from service.console.rendering import templates
from service.corona.poll_explanation import PollingTurn
from service.errors import UserError
from service.model import PollResult
from service.operations.shards import Shard
from service.store.channels.admin_settings import PollRate

HOSTILE = "<script>&"


def _parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)  # noqa: S314 - our own picture


def _macros() -> Any:
    return templates().get_template("charts.html").module


@given(st.lists(st.floats(0.0, 1e9) | st.just(inf), min_size=2, max_size=101))
def test_curves_stay_on_the_page(waits_s: list[float]) -> None:
    root = _parsed(curves_svg([Curve("now", sorted(waits_s))]))
    (line,) = (each for each in root.iter() if each.tag == "polyline")
    for point in line.get("points", "").split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= 640
        assert 0 <= y <= 260


@given(st.lists(st.floats(0.0, 2e9), max_size=20), st.lists(st.floats(0.0, 2e9), max_size=5))
def test_every_poll_has_its_dot(past_s: list[float], next_s: list[float]) -> None:
    polls = [PollResult("a" * 40, at_s, "new") for at_s in past_s]
    turns = [PollingTurn("b" * 40, rank, 0.0, at_s) for rank, at_s in enumerate(next_s)]
    picture = polls_svg(polls, turns, {"a" * 40: HOSTILE}, 1e9)
    if not past_s and not next_s:
        assert picture is None
        return
    assert picture is not None
    root = _parsed(picture)
    assert sum(each.tag == "circle" for each in root.iter()) == len(past_s) + len(next_s)


@given(st.lists(st.tuples(st.floats(0.0, 2e9), st.just(0.0) | st.floats(1e-3, 1e8)), max_size=24))
def test_how_often_it_was_polled_is_a_line_with_a_step_for_each_change(found: list[tuple[float, float]]) -> None:
    picture = paces_svg([PollRate(*each) for each in sorted(found)], 1e9, "Europe/Berlin")
    if not found:
        assert picture is None
        return
    assert picture is not None
    root = _parsed(picture)
    assert sum(each.tag == "circle" for each in root.iter()) == len(found)
    (line,) = (each for each in root.iter() if each.tag == "polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
    assert all(130 <= x <= 696 and 14 <= y <= 120 for x, y in points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)


def test_the_tree_of_key_groups_has_a_box_for_each() -> None:
    shards = [
        Shard("*", 1, GroupState.SPLIT, 2, 0, 0.0),
        Shard("0*", 1, GroupState.ACTIVE, None, 10, 0.0),
        Shard("1*", 2, GroupState.ACTIVE, None, 20, 5_000.0),
    ]
    root = _parsed(_macros().tree(shards, 1_000.0))
    assert [each.get("class") for each in root.findall("g")] == ["split", "leaf full-0", "leaf full-4"]
    assert [box.get("x") for box in root.iter("rect")] == ["0.0", "0.0", "480.0"]


@given(st.integers(1, 300), st.integers(1, 80))
def test_a_matrix_is_drawn_up_to_a_bound(partitions: int, replicas: int) -> None:
    names = tuple(range(partitions))
    root = _parsed(_macros().heat_map(Matrix("channel", f"tag={HOSTILE}", partitions, replicas, names)))
    assert sum(each.tag == "rect" for each in root.iter()) == min(partitions, 64) * min(replicas, 64)


@given(st.text(), st.text())
def test_differences_hold_both_texts(before: str, after: str) -> None:
    pieces = differences(before, after)
    old, new = ("".join(piece.text for piece in pieces if piece.kind != other).split() for other in ("new", "gone"))
    assert old == before.split()[:400]
    assert new == after.split()[:400]


@pytest.mark.parametrize(
    ("text", "length_s"),
    [("90", 90.0), ("90 s", 90.0), ("15 min", 900.0), ("1,5 h", 5_400.0), ("2 days", 172_800.0), ("1 DAY", 86_400.0)],
)
def test_spans_are_read_as_people_write_them(text: str, length_s: float) -> None:
    assert seconds_in(text) == length_s


@pytest.mark.parametrize("text", ["", "soon", "-1 s", "1 year", "1e9", "9" * 30])
def test_what_is_no_span_is_explained(text: str) -> None:
    with pytest.raises(UserError, match="is no length of time"):
        seconds_in(text)


@given(st.integers(1, 10**7))
def test_a_span_reads_back(length_s: int) -> None:
    assert seconds_in(span(float(length_s))) == pytest.approx(length_s, rel=1e-5)


@pytest.mark.timeout(20)
def test_texts_of_few_words_again_and_again_are_not_compared_word_by_word() -> None:
    before, after = "a " * 400, "a b " * 200
    assert differences(before, after) == [Piece("gone", before.rstrip()), Piece("new", after.rstrip())]
    assert differences(before, before) == [Piece("same", before.rstrip())]
    assert differences("a" + " " * 200_000, "a") == [Piece("same", "a")]
