"""Numeric conditions of subscriptions to pages: `< 20`, `changes by 5 %`. Changes that do not meet them are not sent.

A change is the replacement of an old text with a new one. A comparison such as `< 20` is met when it becomes true: it
is true for a number of the new text and false for the same number of the old text. Numbers are paired by their order if
both texts have equally many; otherwise no number of the old text may fulfil the comparison.
"""

import math
import re
from collections.abc import Sequence
from itertools import product
from typing import Final, Literal

import msgspec

from service.model import Change

Operator = Literal["<", "<=", ">", ">=", "=", "changes"]
MAX_NUMBERS: Final = 100
"""Maximum number of numbers that are read in a text."""

_NUMBER = re.compile(
    r"(?:(?<!\w)(?P<sign>[-−–])[$€£¥]?)?"  # noqa: RUF001 - signs that publishers use
    r"(?:(?P<grouped>[1-9]\d{0,2}(?P<separator>[.,'’ ])\d{3}(?:(?P=separator)\d{3}){0,5})(?!\d)"  # noqa: RUF001 - and an apostrophe
    r"(?:(?!(?P=separator))[.,](?P<decimals>\d{1,20}))?"
    r"|(?P<plain>\d{1,20}(?:[.,]\d{1,20})?(?:[eE][-+]?\d{1,2}(?!\w))?))",
    re.ASCII,
)
_COMPARISON = re.compile(r"(<=|>=|=<|=>|[<>=≤≥])(.*)", re.DOTALL)
_CHANGE = re.compile(
    r"(?:changes(?: by)?|ändert sich(?: um)?|change(?: de)?|cambia(?: en| un| di| del)?|muda(?: em)?|verandert(?: met)?"
    r"|zmienia się(?: o)?|±)\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_OPERATORS: Final[dict[str, Operator]] = {
    "<": "<", "<=": "<=", "=<": "<=", "≤": "<=", ">": ">", ">=": ">=", "=>": ">=", "≥": ">=", "=": "=",
}  # fmt: skip
_MAX_AROUND_CHARS = 12
_MIN_SIZE, _MAX_SIZE = 1e-15, 1e15


class NumericCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition on the numbers in a change of a page.

    - ``operator`` compares a number with ``number``; "changes" requires that it changes by at least ``number``.
    - ``percent``: whether ``number`` is in percent of the old number. Only for "changes".
    """

    operator: Operator
    number: float
    percent: bool = False


def parse_numeric_condition(text: str) -> NumericCondition | None:
    """Parse a condition such as ``< 20``, ``>= 1.299,00 €`` or ``changes by 5 %``; return None if it is invalid."""
    text = " ".join(text.split())
    if (change := _CHANGE.fullmatch(text)) is not None:
        number = _only_number(change[1])
        return NumericCondition("changes", number, "%" in change[1]) if number is not None and number > 0 else None
    if (comparison := _COMPARISON.fullmatch(text)) is not None:
        number = _only_number(comparison[2])
        return None if number is None else NumericCondition(_OPERATORS[comparison[1]], number)
    return None


def format_numeric_condition(condition: NumericCondition) -> str:
    """Format a condition in the syntax that :func:`parse_numeric_condition` reads."""
    number = condition.number
    shown = f"{number:.0f}" if number.is_integer() else repr(number)
    # Three decimals would be read as thousands.
    shown += "0" if re.fullmatch(r"-?[1-9]\d{0,2}\.\d{3}", shown) else ""
    if condition.operator == "changes":
        return f"changes by {shown}{' %' if condition.percent else ''}"
    return f"{condition.operator} {shown}"


def is_met(condition: NumericCondition, change: Change) -> bool:
    """Return whether the condition allows a change to be delivered. It always does for the entries of feeds.

    Of two readings of a number, such as 1.299, the one is taken that is nearer to the number in the condition.
    """
    if not change.line:
        return True
    if change.kind == "omission" or (change.kind == "replacement" and not change.before):
        return False
    old, new = find_numbers(change.before), find_numbers(change.entry.summary)
    if condition.operator == "changes":
        pairs = zip(old, new, strict=True) if len(old) == len(new) else zip(old[:1], new[:1], strict=False)
        return any(_differs(condition, before, after) for before, after in pairs)
    were, are = ([_compares(condition, readings) for readings in numbers] for numbers in (old, new))
    if len(were) == len(are):
        return any(after and not before for before, after in zip(were, are, strict=True))
    return any(are) and not any(were)


def find_numbers(text: str) -> list[tuple[float, ...]]:
    """Return the possible values of each of the first 100 numbers in ``text``.

    A number has two possible values if its only separator may separate thousands or decimals: 1.299 is 1299 or 1.299.
    The first value is the one with thousands. Otherwise, "1.299,00", "1,299.00", "1 299,00" and "1'299" are all 1299.
    """
    numbers: list[tuple[float, ...]] = []
    for found in _NUMBER.finditer(text):
        if len(numbers) == MAX_NUMBERS:
            break
        sign = -1 if found["sign"] else 1
        if found["plain"]:
            numbers.append((sign * float(found["plain"].replace(",", ".")),))
            continue
        separator, grouped, decimals = found["separator"], found["grouped"], found["decimals"]
        value = sign * float(f"{grouped.replace(separator, '')}.{decimals or 0}")
        if separator in ".," and not decimals and grouped.count(separator) == 1:
            numbers.append((value, sign * float(grouped.replace(separator, "."))))
        else:
            numbers.append((value,))
    return numbers


def _only_number(text: str) -> float | None:
    """Return the value of the only number in ``text``, which may have a unit; None if there is none, or not just one.

    The result is also None for a number that is extremely small or large.
    """
    found = find_numbers(text)
    around = _NUMBER.sub("", text)
    if len(found) != 1 or len(around) > _MAX_AROUND_CHARS:
        return None
    number = found[0][0]
    return number if not number or _MIN_SIZE <= abs(number) <= _MAX_SIZE else None


def _compares(condition: NumericCondition, readings: Sequence[float]) -> bool:
    limit = condition.number
    value = min(readings, key=lambda reading: _distance(reading, limit))
    match condition.operator:
        case "<":
            return value < limit
        case "<=":
            return value <= limit
        case ">":
            return value > limit
        case ">=":
            return value >= limit
        case _:
            return math.isclose(value, limit, rel_tol=1e-9)


def _differs(condition: NumericCondition, before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether a number has changed by as much as ``condition`` requires.

    ``before`` and ``after`` are its possible values. Those two are compared that are nearest to each other; of several
    such pairs, that without thousands if the required change is less than 1.
    """
    pairs = list(product(before, after))
    if condition.number < 1 and not condition.percent:
        pairs.reverse()
    old, new = min(pairs, key=lambda pair: round(_distance(*pair), 6))
    required = abs(old) * condition.number / 100 if condition.percent else condition.number
    difference = abs(new - old)
    return difference > 0 and (difference >= required or math.isclose(difference, required, rel_tol=1e-9))


def _distance(one: float, other: float) -> float:
    """Return by which factor two numbers differ, as the absolute difference of their logarithms."""
    return abs(math.log10(abs(one) or 1e-9) - math.log10(abs(other) or 1e-9))
