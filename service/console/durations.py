"""Durations: their parser for forms, and their exact and rounded texts."""

import re
from typing import Final

from service.errors import UserError
from service.feeds.publisher_polling_hints import DAY_S

_MINUTE_S = 60
_HOUR_S = 3600
_UNITS_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_UNIT_NAMES: Final = {86_400: "days", 3_600: "h", 60: "min", 1: "s"}
_DURATION: Final = re.compile(r"(\d{1,9}(?:[.,]\d{1,3})?)\s*(s|sec|m|min|h|hours?|d|days?)?", re.IGNORECASE)


def duration(length_s: float) -> str:
    """Return a duration rounded to one unit: ``40 ms``, ``12 s``, ``3 min``, ``5 h``, ``2 days``."""
    if length_s < 1:
        return f"{length_s * 1000:.0f} ms"
    if length_s < _MINUTE_S:
        return f"{length_s:.0f} s"
    if length_s < _HOUR_S:
        return f"{length_s / _MINUTE_S:.0f} min"
    if length_s < 2 * DAY_S:
        return f"{length_s / _HOUR_S:.0f} h"
    return f"{length_s / DAY_S:.0f} days"


def parse_duration(text: str) -> float:
    """Return the length in seconds of a duration such as ``15 min``. A number without a unit is in seconds.

    Raises :class:`UserError` for any other text.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UserError(f"“{text[:50]}” is not a duration. Examples: 90 s, 15 min, 12 h, 2 days.")
    return float(match[1].replace(",", ".")) * _UNITS_S[(match[2] or "s")[0].lower()]


def format_duration(length_s: float) -> str:
    """Return the exact length of a duration as text, in the largest unit that divides it.

    :func:`parse_duration` reads the text back.
    """
    unit_s = next((unit_s for unit_s in _UNIT_NAMES if length_s >= unit_s and length_s % unit_s == 0), 1)
    name = "day" if unit_s == length_s == _UNITS_S["d"] else _UNIT_NAMES[unit_s]
    return f"{length_s / unit_s:.3f}".rstrip("0").rstrip(".") + f" {name}"
