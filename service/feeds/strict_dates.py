"""Dates as most feeds write them, read as feedparser reads them."""

import datetime as dt
import re
from functools import lru_cache

from service.feeds.limits import sane_time_s
from service.feeds.strict_names import Declined

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_ZONES_H = {"gmt": 0, "ut": 0, "utc": 0, "z": 0, "edt": -4, "est": -5, "cdt": -5, "cst": -6} | {
    "mdt": -6, "mst": -7, "pdt": -7, "pst": -8,
}  # fmt: skip
_SHORT_YEAR = 2
_FIRST_OF_1900S = "90"
_WEEKDAYS = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
_LONGEST = 64
# As nearly everybody writes them: these only have to be brought into one form for Python, which is faster.
_USUAL_RFC_822 = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{2}) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([0-9]{4}) "
    r"([0-9]{2}:[0-9]{2}:[0-9]{2}) (GMT|[+-][0-9]{4})"
)
_USUAL_RFC_3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:[0-9]{2})")
_RFC_822 = re.compile(
    r"(?:([a-z]{3})[a-z]*,? +)?([0-9]{1,2}) +([a-z]{3})[a-z]* +([0-9]{4}|[0-9]{2}) +"
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))? +(?:([a-z]{1,3})|([+-])([0-9]{2})([0-9]{2}))"
)
_RFC_3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[t ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?(?:z|([+-])([0-9]{2}):([0-9]{2}))?)?"
)


@lru_cache(maxsize=2)  # for entries that say twice when they were written
def time_s(date: str) -> float | None:
    """Return the date in Unix seconds; None if it is empty or impossible. Raises :class:`Declined` for other forms."""
    if not date:
        return None
    if len(date) > _LONGEST:
        raise Declined
    try:
        usual = _usual_form(date)
        return sane_time_s(dt.datetime.fromisoformat(usual).timestamp()) if usual else _unusual_time_s(date)
    except ValueError:  # such as 31 April or a leap second, for which feedparser has more readings
        raise Declined from None


def _usual_form(date: str) -> str:
    """Return a date that has one of the usual forms in that of RFC 3339; "" for others."""
    if _USUAL_RFC_3339.fullmatch(date):
        return date
    found = _USUAL_RFC_822.fullmatch(date)
    if not found:
        return ""
    day, month, year, clock, zone = found.groups()
    return f"{year}-{_MONTHS[month.lower()]:02}-{day}T{clock}{zone if zone != 'GMT' else 'Z'}"


def _unusual_time_s(date: str) -> float | None:
    lowered = date.lower()
    if found := _RFC_3339.fullmatch(lowered):
        year, month, day, *clock, sign, zone_h, zone_min = found.groups()
        zone_name = ""
    elif found := _RFC_822.fullmatch(lowered):
        weekday, day, month_name, year, *clock, zone_name, sign, zone_h, zone_min = found.groups()
        if month_name not in _MONTHS or (weekday and weekday not in _WEEKDAYS):
            raise Declined
        month = _MONTHS[month_name]
        year = year if len(year) > _SHORT_YEAR else ("19" if year >= _FIRST_OF_1900S else "20") + year
    else:
        raise Declined
    if zone_name and zone_name not in _ZONES_H:
        raise Declined
    hour, minute, second = clock
    moment = dt.datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=dt.UTC
    )
    offset_s = _ZONES_H[zone_name] * 3_600 if zone_name else int(zone_h or 0) * 3_600 + int(zone_min or 0) * 60
    return sane_time_s(moment.timestamp() - (-offset_s if sign == "-" else offset_s))
