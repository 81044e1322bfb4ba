"""Lengths of time as people write them in forms: ``90 s``, ``15 min``, ``12 h``, ``2 days``. Pure."""

import re
from typing import Final

from service.errors import UserError

_UNITS_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NAMES: Final = {86_400: "days", 3_600: "h", 60: "min", 1: "s"}
_SPAN: Final = re.compile(r"(\d{1,9}(?:[.,]\d{1,3})?)\s*(s|sec|m|min|h|hours?|d|days?)?", re.IGNORECASE)


def seconds_in(text: str) -> float:
    """Return how many seconds a span has; without a unit, it is in seconds. Raises :class:`UserError`."""
    read = _SPAN.fullmatch(text.strip())
    if read is None:
        raise UserError(f"“{text[:50]}” is no length of time. Write it like “90 s”, “15 min”, “12 h” or “2 days”.")
    return float(read[1].replace(",", ".")) * _UNITS_S[(read[2] or "s")[0].lower()]


def span(length_s: float) -> str:
    """Return a length of time so that :func:`seconds_in` reads it back: in the largest unit that makes it whole."""
    unit_s = next((unit_s for unit_s in _NAMES if length_s >= unit_s and length_s % unit_s == 0), 1)
    name = "day" if unit_s == length_s == _UNITS_S["d"] else _NAMES[unit_s]
    return f"{length_s / unit_s:.3f}".rstrip("0").rstrip(".") + f" {name}"
