"""Numeric conditions: numbers as publishers write them, and crossings."""

import pytest

from service.model import Change, Entry
from service.users.numeric_conditions import (
    NumericCondition,
    find_numbers,
    format_numeric_condition,
    is_met,
    parse_numeric_condition,
)


def replaced(old: str, new: str) -> Change:
    return Change("replacement", Entry("k", summary=new), 1, old)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1.299,00 €", [1299.0]),
        ("$1,299.00", [1299.0]),
        ("−3.5 %", [-3.5]),  # noqa: RUF001 - a minus sign
        ("-$5.00", [-5.0]),
        ("1 299,50 €", [1299.5]),
        ("CHF 1'299.–", [1299.0]),  # noqa: RUF001 - as in Switzerland
        ("12.345.678", [12345678.0]),
        ("0.123", [0.123]),
        ("1234,567", [1234.567]),
        ("9.99", [9.99]),
        ("EUR20", [20.0]),
        ("10–20", [10.0, 20.0]),  # noqa: RUF001 - a range
        ("1e-05", [1e-05]),
        ("Phone 15: 999 €", [15.0, 999.0]),
        ("sold out", []),
    ],
)
def test_numbers_are_found_in_texts(text: str, numbers: list[float]) -> None:
    assert [readings[0] for readings in find_numbers(text)] == numbers


def test_a_number_with_a_single_separator_before_three_digits_has_two_readings() -> None:
    assert find_numbers("1.299") == find_numbers("1,299") == [(1299.0, 1.299)]


@pytest.mark.parametrize(
    ("text", "condition", "shown"),
    [
        ("< 20", NumericCondition("<", 20.0), "< 20"),
        ("<=1.299,00 €", NumericCondition("<=", 1299.0), "<= 1299"),
        ("≥ $1,299", NumericCondition(">=", 1299.0), ">= 1299"),
        ("= 0", NumericCondition("=", 0.0), "= 0"),
        ("> −3.5 %", NumericCondition(">", -3.5), "> -3.5"),  # noqa: RUF001 - a minus sign
        ("> 1.0850", NumericCondition(">", 1.085), "> 1.0850"),
        ("changes by 5 %", NumericCondition("changes", 5.0, percent=True), "changes by 5 %"),
        ("Changes by 3 €", NumericCondition("changes", 3.0), "changes by 3"),
        ("ändert sich um 0,5%", NumericCondition("changes", 0.5, percent=True), "changes by 0.5 %"),
        ("change de 5 %", NumericCondition("changes", 5.0, percent=True), "changes by 5 %"),
        ("cambia en 5 %", NumericCondition("changes", 5.0, percent=True), "changes by 5 %"),
    ],
)
def test_conditions_are_parsed_and_formatted(text: str, condition: NumericCondition, shown: str) -> None:
    assert parse_numeric_condition(text) == condition
    assert format_numeric_condition(condition) == shown


@pytest.mark.parametrize(
    "text", ["", "20", "< cheap", "<", "< 1 or 2", "changes by 0", "changes", "!= 3", "< 20 and a good deal of text"]
)
def test_invalid_conditions_are_refused(text: str) -> None:
    assert parse_numeric_condition(text) is None


@pytest.mark.parametrize(
    ("condition", "old", "new", "met"),
    [
        ("< 20", "25 €", "19 €", True),
        ("< 20", "19 €", "18 €", False),  # it was true before
        ("< 20", "19 €", "25 €", False),
        ("< 20", "20 €", "20,00 €", False),
        ("<= 20", "21 €", "20,00 €", True),
        ("> 1000", "999 €", "1.299 €", True),
        ("> 1.1", "1.085", "1.102", True),
        ("> 1.1", "1.085", "1.09", False),
        ("= 0", "3 left", "0 left", True),
        ("< 900", "Phone 15: 999 €", "Phone 15: 899 €", True),
        ("< 20", "sold out", "19 €", True),
        ("< 20", "19 €", "sold out", False),
        ("< 20", "was 30 € and 25 €", "19 €", True),
        ("< 20", "was 19 € and 25 €", "18 €", False),
        ("changes by 5 %", "100 €", "105 €", True),
        ("changes by 5 %", "100 €", "104 €", False),
        ("changes by 5 %", "100 €", "95 €", True),
        ("changes by 5", "999", "1.010", True),
        ("changes by 5", "999", "1.003", False),
        ("changes by 0.005", "1.085", "1.092", True),
        ("changes by 0.02", "1.085", "1.092", False),
        ("changes by 5 %", "0", "1", True),
        ("changes by 1", "sold out", "5 €", False),
    ],
)
def test_a_change_is_told_if_the_condition_becomes_true(condition: str, old: str, new: str, *, met: bool) -> None:
    parsed = parse_numeric_condition(condition)
    assert parsed is not None
    assert is_met(parsed, replaced(old, new)) is met


def test_added_lines_can_meet_a_comparison_and_removed_ones_cannot() -> None:
    below = NumericCondition("<", 20.0)
    assert is_met(below, Change("addition", Entry("k", summary="Pears 19 €"), 3))
    assert not is_met(below, Change("omission", Entry("k", summary="Pears 19 €"), 3))
    assert not is_met(below, Change("replacement", Entry("k", summary="… and 5 more changes"), 3))


def test_entries_of_feeds_always_meet_a_condition() -> None:
    assert is_met(NumericCondition("<", 20.0), Change("addition", Entry("k", "Title")))
