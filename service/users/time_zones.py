"""Time zones of the tz database: search for a time zone by its name or city, and conversion to local time."""

from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo, available_timezones


def local_datetime(unix_s: float, zone: str) -> datetime:
    """Return the local time in the time zone ``zone`` at the Unix time ``unix_s``."""
    return datetime.fromtimestamp(unix_s, zone_info(zone))


def find_time_zones(name: str) -> tuple[str, ...]:
    """Return the names of the time zones that have the name, or contain the city, ``name``; case is ignored.

    If ``name`` is the full name of a zone, like ``Europe/Berlin``, only this name is returned. Otherwise, all zones
    that are named after the city ``name`` are returned; there may be none.
    """
    key = "_".join(name.split()).casefold()
    exact = [zone for zone in _zones() if zone.casefold() == key]
    return tuple(exact or (zone for zone in _zones() if zone.casefold().rpartition("/")[2] == key))


@cache
def zone_info(name: str) -> ZoneInfo:
    """Return the time zone with this name of the tz database."""
    return ZoneInfo(name)


@cache
def _zones() -> tuple[str, ...]:
    return tuple(sorted(name for name in available_timezones() if "/" in name or name == "UTC"))
