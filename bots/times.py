"""The words in which people write of times, in each of the languages we speak. Pure.

Days are known by their first three letters or more, with or without accents: no two languages disagree on those.
German ones by two letters as well.
"""

import re
from typing import Final
from unicodedata import combining, normalize

from service.habits import EVERY_DAY

_WEEKDAYS: Final = EVERY_DAY[:5]
_WEEKEND: Final = EVERY_DAY[5:]

_DAYS: Final = (
    ("monday", "montag", "lundi", "lunes"),
    ("tuesday", "dienstag", "mardi", "martes"),
    ("wednesday", "mittwoch", "mercredi", "miercoles"),
    ("thursday", "donnerstag", "jeudi", "jueves"),
    ("friday", "freitag", "vendredi", "viernes"),
    ("saturday", "samstag", "samedi", "sabado"),
    ("sunday", "sonntag", "dimanche", "domingo"),
)
_SHORT: Final = ("mo", "di", "mi", "do", "fr", "sa", "so")
_SHORTEST: Final = 3

NAMED_DAYS: Final = {
    **dict.fromkeys(("weekdays", "werktags", "wochentags", "laborables"), _WEEKDAYS),
    **dict.fromkeys(("weekend", "weekends", "wochenende", "wochenenden", "week-end", "week-ends", "finde"), _WEEKEND),
    **dict.fromkeys(("daily", "always", "taglich", "immer", "toujours", "diario", "siempre"), EVERY_DAY),
}

RHYTHMS: Final = {
    **dict.fromkeys(("hourly", "stundlich", "horaire", "toutes les heures", "cada hora"), "hour"),
    **dict.fromkeys(("daily", "taglich", "jeden tag", "quotidien", "tous les jours"), "day"),
    **dict.fromkeys(("chaque jour", "diario", "diariamente", "cada dia"), "day"),
    **dict.fromkeys(("weekly", "wochentlich", "jede woche", "hebdomadaire", "toutes les semaines"), "week"),
    **dict.fromkeys(("chaque semaine", "semanal", "semanalmente", "cada semana"), "week"),
}

AT_ONCE: Final = frozenset(("at once", "sofort", "tout de suite", "aussitot", "de inmediato", "enseguida"))
EVERY: Final = re.compile(r"^(?:at most |every |alle |jede[nrs]? |tou(?:te)?s les |chaque |cada |tod[ao]s l[ao]s )+")
UNITS_S: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds", "sek", "sekunde", "sekunden"), 1),
    **dict.fromkeys(("seconde", "secondes", "seg", "segundo", "segundos"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minuten", "minuto", "minutos"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden"), 3_600),
    **dict.fromkeys(("heure", "heures", "hora", "horas"), 3_600),
    **dict.fromkeys(("d", "day", "days", "tag", "tage", "tagen", "j", "jour", "jours", "dia", "dias"), 86_400),
    **dict.fromkeys(("w", "week", "weeks", "woche", "wochen", "semaine", "semaines", "semana", "semanas"), 604_800),
}

FROM: Final = re.compile(r"^(?:from|von|de)\s+")
TO: Final = re.compile(r"\s*(?:-|–|\b(?:to|bis|hasta|a)\b)\s*")  # noqa: RUF001 - people type it
AT: Final = re.compile(r"\s(?:at|um|a las|a)\s")


def bare(words: str) -> str:
    """Return words as they compare: without capitals and accents, one space between them and none around.

    Without long runs of white space, the expressions above take linear time.
    """
    plain = "".join(each for each in normalize("NFKD", words.casefold()) if not combining(each))
    return " ".join(plain.split())


def day(name: str) -> int | None:
    """Return which day of the week is called so; 0 is Monday."""
    if name in _SHORT:
        return _SHORT.index(name)
    if len(name) < _SHORTEST:
        return None
    return next((number for number, names in enumerate(_DAYS) if any(full.startswith(name) for full in names)), None)
