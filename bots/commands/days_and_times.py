"""Parser for days, times of day and intervals: `22:00-07:00 mon-fri`, `weekly fri 17:00`, `every 2 hours`.

The functions return None for text that they cannot parse. Names of days may be in any language of the bot, with or
without accents, and may be shortened to their first three letters. German, Dutch and Polish names may also be shortened
to two letters, except that "so" is only Sunday (German), not Saturday (Polish). The abbreviations are unambiguous: none
of them means different days in two languages.
"""

import re
from typing import Final

from bots.i18n.translator import normalize_words
from service.users.quiet_hours_and_digests import DAYS, EVERY_DAY, DigestSchedule, QuietHours

_WEEKDAYS: Final = EVERY_DAY[:5]
_WEEKEND: Final = EVERY_DAY[5:]

_DAYS: Final = tuple(
    names.split()
    for names in (
        "monday montag lundi lunes lunedi segunda-feira maandag poniedzialek poniedzialku",
        "tuesday dienstag mardi martes martedi terca-feira dinsdag wtorek wtorku",
        "wednesday mittwoch mercredi miercoles mercoledi quarta-feira woensdag sroda srode srody",
        "thursday donnerstag jeudi jueves giovedi quinta-feira donderdag czwartek czwartku",
        "friday freitag vendredi viernes venerdi sexta-feira vrijdag piatek piatku",
        "saturday samstag samedi sabado sabato zaterdag sobota sobote soboty",
        "sunday sonntag dimanche domingo domenica zondag niedziela niedziele niedzieli",
    )
)
_TWO_LETTER_DAYS: Final = tuple(
    names.split() for names in ("mo ma pn", "di wt", "mi wo sr", "do cz", "fr vr pt", "sa za sb", "so zo nd")
)
_MIN_DAY_CHARS: Final = 3

DAY_GROUPS: Final = {
    **dict.fromkeys(("weekdays", "werktags", "wochentags", "laborables", "giorni lavorativi", "lavorativi"), _WEEKDAYS),
    **dict.fromkeys(("dias uteis", "werkdagen", "doordeweeks", "dni robocze", "w dni robocze"), _WEEKDAYS),
    **dict.fromkeys(("weekend", "weekends", "wochenende", "wochenenden", "week-end", "week-ends", "finde"), _WEEKEND),
    **dict.fromkeys(("fine settimana", "fim de semana", "fins de semana", "weekendy", "w weekendy"), _WEEKEND),
    **dict.fromkeys(("daily", "always", "taglich", "immer", "toujours", "diario", "siempre", "sempre"), EVERY_DAY),
    **dict.fromkeys(("ogni giorno", "todos os dias", "elke dag", "dagelijks", "altijd", "codziennie"), EVERY_DAY),
    "zawsze": EVERY_DAY,
}

SCHEDULES: Final = {
    **dict.fromkeys(("hourly", "stundlich", "horaire", "toutes les heures", "cada hora", "ogni ora"), "hour"),
    **dict.fromkeys(("a cada hora", "de hora em hora", "elk uur", "ieder uur", "co godzine"), "hour"),
    **dict.fromkeys(("daily", "taglich", "jeden tag", "quotidien", "tous les jours"), "day"),
    **dict.fromkeys(("chaque jour", "diario", "diariamente", "cada dia", "ogni giorno", "giornaliero"), "day"),
    **dict.fromkeys(("quotidiano", "todos os dias", "dagelijks", "elke dag", "iedere dag", "codziennie"), "day"),
    **dict.fromkeys(("weekly", "wochentlich", "jede woche", "hebdomadaire", "toutes les semaines"), "week"),
    **dict.fromkeys(("chaque semaine", "semanal", "semanalmente", "cada semana", "ogni settimana"), "week"),
    **dict.fromkeys(("settimanale", "toda semana", "todas as semanas", "wekelijks", "elke week"), "week"),
    **dict.fromkeys(("iedere week", "co tydzien", "tygodniowo"), "week"),
}

EVERY_WORDS: Final = re.compile(
    r"^(?:at most (?:once )?|every |alle |jede[nrs]? |tou(?:te)?s les |chaque |(?:a )?cada |tod[ao]s l?[ao]s |toda "
    r"|ogni |elke? |om de |iedere? |co )+"
)
UNITS_S: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds", "sek", "sekunde", "sekunden"), 1),
    **dict.fromkeys(("seconde", "secondes", "seg", "segundo", "segundos", "secondo", "secondi"), 1),
    **dict.fromkeys(("seconden", "sekunda", "sekundy", "sekund"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minuten", "minuto", "minutos", "minuti"), 60),
    **dict.fromkeys(("minuut", "minuta", "minuty", "minut"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden"), 3_600),
    **dict.fromkeys(("heure", "heures", "hora", "horas", "ora", "ore", "u", "uur", "uren"), 3_600),
    **dict.fromkeys(("godz", "godzina", "godzine", "godziny", "godzin"), 3_600),
    **dict.fromkeys(("d", "day", "days", "tag", "tage", "tagen", "j", "jour", "jours", "dia", "dias"), 86_400),
    **dict.fromkeys(("giorno", "giorni", "dag", "dagen", "dzien", "dni"), 86_400),
    **dict.fromkeys(("w", "week", "weeks", "woche", "wochen", "semaine", "semaines", "semana", "semanas"), 604_800),
    **dict.fromkeys(("settimana", "settimane", "weken", "tydzien", "tygodnie", "tygodni"), 604_800),
}

FROM_WORDS: Final = re.compile(r"^(?:from|von|de|da|dal|dalle|das|van|od)\s+")
# The Polish "do" is Thursday in German and Dutch, unless the end of a range follows.
TO_WORDS: Final = re.compile(
    r"\s*(?:-|–|\b(?:to|bis|hasta|a|al|alle|as|ate|tot|t/m)\b"  # noqa: RUF001 - people type it
    r"|\bdo\b(?= (?:\d|wtorku|srody|czwartku|piatku|soboty|niedzieli)))\s*"
)
AT_WORDS: Final = re.compile(r"\s(?:at|um|a las|a|alle|as|om|o)\s")

_TIME = re.compile(r"(\d{1,2})(?:[hu]|[:.hu](\d{2}))?")
_DURATION = re.compile(r"\s*([0-9]{1,6})\s*([a-z]+)\.?(?![a-z])")
_SCHEDULE_INTERVALS_S: Final = {"hour": 3_600, "day": 86_400, "week": 604_800}
_HOURS_PER_DAY: Final = 24
_MINUTES_PER_HOUR: Final = 60


def _parse_day(name: str) -> int | None:
    """Return the index of a day of the week (0 is Monday), or None if ``name`` is not the name of a day."""
    if len(name) < _MIN_DAY_CHARS:
        return next((number for number, names in enumerate(_TWO_LETTER_DAYS) if name in names), None)
    return next((number for number, names in enumerate(_DAYS) if any(full.startswith(name) for full in names)), None)


def parse_quiet_hours(words: str) -> QuietHours | None:
    """Parse quiet hours, for example ``22:00-07:00``, ``22:00-07:00 mon-fri`` or ``0:00-24:00 sat,sun``.

    Returns None if the words are not quiet hours.
    """
    hours, _, days = TO_WORDS.sub("-", FROM_WORDS.sub("", normalize_words(words))).partition(" ")
    begins, dash, ends = hours.partition("-")
    first, last, weekdays = _parse_minute(begins), _parse_minute(ends), _parse_days(days) if days.strip() else EVERY_DAY
    if not dash or first is None or last is None or weekdays is None:
        return None
    return QuietHours(first, last, weekdays)


def parse_digest(words: str) -> DigestSchedule | None:
    """Parse a digest schedule: ``hourly``, ``daily HH:MM`` or ``weekly DAY HH:MM``; day and time are optional.

    Returns None if the words are not a schedule.
    """
    plain = f"{normalize_words(words)} "
    named = next((name for name in SCHEDULES if plain.startswith(f"{name} ")), None)
    if named is None:
        return None
    rest = AT_WORDS.sub(" ", f" {plain.removeprefix(named).strip()}").split()
    at = _parse_minute(rest[-1]) if rest else None
    before = rest[:-1] if at is not None else rest
    found = DigestSchedule("day") if at is None else DigestSchedule("day", at)
    match SCHEDULES[named], before:
        case "hour", [] if not rest:
            return DigestSchedule("hour")
        case "day", []:
            return found
        case "week", []:
            return DigestSchedule("week", found.at)
        case "week", [name] if (day := _parse_day(name)) is not None:
            return DigestSchedule("week", found.at, day)
    return None


def parse_interval_s(words: str) -> int | None:
    """Parse an interval like ``10m``, ``1h 30m``, ``every 2 days`` or ``hourly``.

    Returns seconds, or None if the words are not an interval.
    """
    plain = normalize_words(words)
    if plain in SCHEDULES:
        return _SCHEDULE_INTERVALS_S[SCHEDULES[plain]]
    plain = EVERY_WORDS.sub("", plain)
    if plain in UNITS_S:
        return UNITS_S[plain]
    parts = [(int(each[1]), UNITS_S.get(each[2])) for each in _DURATION.finditer(plain)]
    if not parts or _DURATION.sub("", plain).strip() or any(unit_s is None for _, unit_s in parts):
        return None
    return sum(count * (unit_s or 0) for count, unit_s in parts)


def _parse_minute(text: str) -> int | None:
    """Return a time of day in minutes after midnight, or None if ``text`` is not a time; 24:00 gives 0."""
    read = _TIME.fullmatch(text.strip())
    if read is None:
        return None
    hour, minute = int(read[1]), int(read[2] or 0)
    if (hour, minute) == (_HOURS_PER_DAY, 0):
        return 0
    return hour * _MINUTES_PER_HOUR + minute if hour < _HOURS_PER_DAY and minute < _MINUTES_PER_HOUR else None


def _parse_days(words: str) -> tuple[int, ...] | None:
    if (named := DAY_GROUPS.get(words.strip())) is not None:
        return named
    found: set[int] = set()
    # In a Portuguese name, such as "segunda-feira", the hyphen is not a range.
    for part in re.split(r"[,\s]+", FROM_WORDS.sub("", words.strip()).replace("-feira", "")):
        first, dash, last = part.partition("-")
        begin, end = _parse_day(first), _parse_day(last) if dash else _parse_day(first)
        if begin is None or end is None:
            return None
        found.update((begin + number) % len(DAYS) for number in range((end - begin) % len(DAYS) + 1))
    return tuple(sorted(found))
