"""Time zones in the tz database: search by name or city, and conversion to local time."""

from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo, available_timezones


def local_datetime(unix_s: float, zone: str) -> datetime:
    """Return the local time in the time zone ``zone`` at the Unix time ``unix_s``."""
    return datetime.fromtimestamp(unix_s, zone_info(zone))


def find_time_zones(name: str) -> tuple[str, ...]:
    """Return the names of the time zones that match ``name``, ignoring case.

    If ``name`` is the full name of a zone, such as ``Europe/Berlin``, only this zone is returned. Otherwise, all zones
    named after the city ``name`` are returned. The result is empty if there are none.
    """
    key = "_".join(name.split()).casefold()
    exact = [zone for zone in _zones() if zone.casefold() == key]
    return tuple(exact or (zone for zone in _zones() if zone.casefold().rpartition("/")[2] == key))


@cache
def zone_info(name: str) -> ZoneInfo:
    """Return the time zone called ``name`` in the tz database."""
    return ZoneInfo(name)


@cache
def _zones() -> tuple[str, ...]:
    return tuple(sorted(name for name in available_timezones() if "/" in name or name == "UTC"))
