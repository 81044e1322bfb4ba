"""Properties of numeric conditions: any text is read, numbers survive formatting, and crossings alternate."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from service.model import Change, Entry
from service.users.numeric_conditions import (
    MAX_NUMBERS,
    NumericCondition,
    find_numbers,
    format_numeric_condition,
    is_met,
    parse_numeric_condition,
)

_CENTS = st.integers(0, 10**11)
_OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "=", "changes by"])


@given(st.text() | st.text(st.sampled_from("0123456789.,'’ -−–eE$€%<>=±"), max_size=700))  # noqa: RUF001 - signs that publishers use
def test_any_text_is_read(text: str) -> None:
    numbers = find_numbers(text)
    assert len(numbers) <= MAX_NUMBERS
    assert all(math.isfinite(reading) for readings in numbers for reading in readings)
    parse_numeric_condition(text)
    for condition in (NumericCondition("<", 20.0), NumericCondition("changes", 5.0, percent=True)):
        assert isinstance(is_met(condition, Change("replacement", Entry("k", summary=text), 1, text[::-1])), bool)


@given(
    cents=_CENTS,
    separators=st.sampled_from([(",", "."), (".", ","), (" ", ","), ("'", ".")]),
    negative=st.booleans(),
)
def test_an_amount_is_read_with_any_separators(*, cents: int, separators: tuple[str, str], negative: bool) -> None:
    thousands, decimal = separators
    text = f"{cents / 100:,.2f}".replace(",", "T").replace(".", decimal).replace("T", thousands)
    assert find_numbers(f"{'−' if negative else ''}{text} €") == [((-1 if negative else 1) * cents / 100,)]  # noqa: RUF001 - a minus sign


@given(operator=_OPERATORS, cents=_CENTS, percent=st.booleans())
def test_a_condition_survives_formatting(*, operator: str, cents: int, percent: bool) -> None:
    condition = parse_numeric_condition(f"{operator} {cents / 100:.4f}{' %' if percent else ''}")
    assert condition is not None or (operator == "changes by" and not cents)
    if condition is not None:
        assert parse_numeric_condition(format_numeric_condition(condition)) == condition


@given(st.lists(st.integers(0, 40), min_size=2))
def test_a_comparison_is_told_once_for_each_time_it_becomes_true(prices: list[int]) -> None:
    below = NumericCondition("<", 20.0)
    changes = [
        Change("replacement", Entry("k", summary=f"{new} €"), 1, f"{old} €") for old, new in itertools.pairwise(prices)
    ]
    told = [is_met(below, change) for change in changes]
    assert told == [new < 20 <= old for old, new in itertools.pairwise(prices)]
