"""What people write of settings, as values: `quiet 22:00-07:00 mon-fri`, `every 2 hours`, `mute=on`. Pure.

What is not understood is None, or the reply that says so. Days are known by their first three letters or more, with or
without accents: no two languages disagree on those. German ones by two letters as well.
"""

import re
from typing import Final

import msgspec

from bots.commands.parser import MAX_ENTRY_COUNT
from bots.i18n.translator import normalize_words
from bots.replies import entry_templates
from bots.replies.base import Reply
from bots.replies.help import MissingArgument
from bots.replies.settings import (
    InvalidSetting,
    InvalidTime,
    NoSuchFilter,
    NoSuchSetting,
    TooManyFilters,
    UnknownTimeZone,
)
from bots.replies.subscriptions import InitialSettings
from service.feeds.parsing.html_text import one_line
from service.users.preferences import (
    MAX_INTERVAL_S,
    MAX_RULES,
    MIN_INTERVAL_S,
    FilterRule,
    Preferences,
    parse_condition,
)
from service.users.quiet_hours import DAYS, EVERY_DAY, DigestSchedule, QuietHours, UserSettings, find_time_zones

ON: Final = frozenset(("on", "yes", "true", "an", "ein", "ja", "oui", "activer", "activé", "sí", "si", "activar"))
OFF: Final = frozenset(
    ("off", "none", "no", "never", "stop", "aus", "nein", "nie", "non", "jamais", "arrêt", "nunca", "desactivar")
)

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

_TIME = re.compile(r"(\d{1,2})(?:h|[:.h](\d{2}))?")
_SPAN = re.compile(r"\s*([0-9]{1,6})\s*([a-z]+)\.?(?![a-z])")
_RHYTHMS_S: Final = {"hour": 3_600, "day": 86_400, "week": 604_800}
_HOURS: Final = 24
_MINUTES: Final = 60
_MOST_TITLE_CHARS: Final = 120
_USUAL: Final = frozenset(("default", "usual", "standard", "défaut", "predeterminado"))
KEYS: Final = {
    **dict.fromkeys(("mute", "muted", "stumm", "muet", "silenciar"), "mute"),
    **dict.fromkeys(("title", "name", "titel", "titre", "título", "titulo", "nombre", "nom"), "title"),
    **dict.fromkeys(("edits", "edit", "corrections", "änderungen", "modifications", "ediciones"), "edits"),
    **dict.fromkeys(("format", "template", "vorlage", "modèle", "plantilla", "formato"), "format"),
    **dict.fromkeys(("proof", "latest", "beweis", "neueste", "preuve", "derniers", "prueba", "últimos"), "proof"),
    **dict.fromkeys(("interval", "every", "intervall", "intervalle", "intervalo"), "interval"),
}
_KINDS: Final = {
    **dict.fromkeys(("allow", "only", "nur", "erlauben", "seulement", "autoriser", "solo", "sólo", "permitir"), True),
    **dict.fromkeys(("deny", "not", "without", "block", "hide", "ohne", "sans", "refuser", "sin", "denegar"), False),
}
_PRESENCE: Final = frozenset(("presence", "away", "präsenz", "anwesenheit", "présence", "presencia"))
_NUMBER = re.compile(r"#?([0-9]{1,3})")


def _day(name: str) -> int | None:
    """Return which day of the week is called so; 0 is Monday."""
    if name in _SHORT:
        return _SHORT.index(name)
    if len(name) < _SHORTEST:
        return None
    return next((number for number, names in enumerate(_DAYS) if any(full.startswith(name) for full in names)), None)


def set_quiet_hours(user_settings: UserSettings, words: str) -> UserSettings | Reply:
    """Return the settings with these quiet hours, ``off`` or ``presence``."""
    if words.lower() in OFF:
        return msgspec.structs.replace(user_settings, quiet=None, heeds_presence=False)
    if words.lower() in _PRESENCE:
        return msgspec.structs.replace(user_settings, heeds_presence=True)
    hours = quiet(words)
    return msgspec.structs.replace(user_settings, quiet=hours) if hours else InvalidTime("quiet", words)


def set_digest(user_settings: UserSettings, words: str) -> UserSettings | Reply:
    """Return the settings with this digest, or ``off``."""
    off = words.lower() in OFF
    rhythm = None if off else digest(words)
    return msgspec.structs.replace(user_settings, digest=rhythm) if rhythm or off else InvalidTime("digest", words)


def set_time_zone(user_settings: UserSettings, words: str) -> UserSettings | Reply:
    """Return the settings with the time zone of this name."""
    zones = find_time_zones(words)
    return msgspec.structs.replace(user_settings, zone=zones[0]) if len(zones) == 1 else UnknownTimeZone(words, zones)


def quiet(words: str) -> QuietHours | None:
    """Return hours to be quiet, from ``HH:MM-HH:MM`` and perhaps days: ``mon-fri``, ``sat,sun``, ``weekdays``."""
    hours, _, days = TO.sub("-", FROM.sub("", normalize_words(words))).partition(" ")
    begins, dash, ends = hours.partition("-")
    first, last, chosen = _minute(begins), _minute(ends), _days(days) if days.strip() else EVERY_DAY
    if not dash or first is None or last is None or chosen is None:
        return None
    return QuietHours(first, last, chosen)


def digest(words: str) -> DigestSchedule | None:
    """Return how to gather news, from ``hourly``, ``daily HH:MM`` or ``weekly DAY HH:MM``; times may be left out."""
    plain = f"{normalize_words(words)} "
    named = next((name for name in RHYTHMS if plain.startswith(f"{name} ")), None)
    if named is None:
        return None
    rest = AT.sub(" ", f" {plain.removeprefix(named).strip()}").split()
    at = _minute(rest[-1]) if rest else None
    before = rest[:-1] if at is not None else rest
    found = DigestSchedule("day") if at is None else DigestSchedule("day", at)
    match RHYTHMS[named], before:
        case "hour", [] if not rest:
            return DigestSchedule("hour")
        case "day", []:
            return found
        case "week", []:
            return DigestSchedule("week", found.at)
        case "week", [name] if (day := _day(name)) is not None:
            return DigestSchedule("week", found.at, day)
    return None


def interval_s(words: str) -> int | None:
    """Return how far apart to tell, in seconds, from ``10m``, ``1h 30m``, ``every 2 days`` or ``hourly``."""
    plain = normalize_words(words)
    if plain in RHYTHMS:
        return _RHYTHMS_S[RHYTHMS[plain]]
    plain = EVERY.sub("", plain)
    if plain in UNITS_S:
        return UNITS_S[plain]
    parts = [(int(each[1]), UNITS_S.get(each[2])) for each in _SPAN.finditer(plain)]
    if not parts or _SPAN.sub("", plain).strip() or any(unit_s is None for _, unit_s in parts):
        return None
    return sum(count * (unit_s or 0) for count, unit_s in parts)


def _minute(text: str) -> int | None:
    """Return a time of day in minutes; 24:00 is midnight."""
    read = _TIME.fullmatch(text.strip())
    if read is None:
        return None
    hour, minute = int(read[1]), int(read[2] or 0)
    if (hour, minute) == (_HOURS, 0):
        return 0
    return hour * _MINUTES + minute if hour < _HOURS and minute < _MINUTES else None


def _days(words: str) -> tuple[int, ...] | None:
    if (named := NAMED_DAYS.get(words.strip())) is not None:
        return named
    found: set[int] = set()
    for part in re.split(r"[,\s]+", words.strip()):
        first, dash, last = part.partition("-")
        begin, end = _day(first), _day(last) if dash else _day(first)
        if begin is None or end is None:
            return None
        found.update((begin + number) % len(DAYS) for number in range((end - begin) % len(DAYS) + 1))
    return tuple(sorted(found))


def apply_settings(before: Preferences, settings: InitialSettings) -> Preferences | Reply:
    """Return what is wanted of one subscription after these wishes; or what is wrong with one of them."""
    for key, value in settings:
        changed = change_setting(before, key, value, for_all=False)
        if not isinstance(changed, Preferences):
            return changed
        before = changed
    return before


def change_setting(before: Preferences, named: str, value: str, *, for_all: bool) -> Preferences | Reply:  # noqa: PLR0911 - one arm per key
    """Return what is wanted after a setting is changed; or what is wrong with that."""
    key, value = KEYS.get(named.lower(), ""), value.strip()
    usual = value.lower() in _USUAL
    off = value.lower() in OFF
    switched = None if usual else value.lower() in ON
    match key:
        case "":
            return NoSuchSetting(named)
        case "interval":
            return _with_interval(before, value, off=off, usual=usual)
        case "mute" | "edits" if not (off or switched or usual):
            return InvalidSetting(key, value)
        case "mute":
            return msgspec.structs.replace(before, muted=bool(switched))
        case "edits":
            return msgspec.structs.replace(before, edits=switched)
        case "proof":
            return _with_proof(before, value, off=off, usual=usual)
        case "title" if for_all or not value:
            return InvalidSetting(key, value)
        case "title":
            title = "" if off or usual else one_line(value, _MOST_TITLE_CHARS)
            return msgspec.structs.replace(before, title=title)
        case _:
            return _with_template(before, value, off=off, usual=usual)


def _with_interval(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    seconds = interval_s(value)
    if off or usual or normalize_words(value) in AT_ONCE:
        return msgspec.structs.replace(before, interval_s=None if usual else 0)
    if seconds is None or not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        return InvalidSetting("interval", value)
    return msgspec.structs.replace(before, interval_s=seconds)


def _with_proof(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    number = _NUMBER.fullmatch(value)
    if off or usual or value.lower() in ON:
        return msgspec.structs.replace(before, proof=0 if off else None)
    if number is None or int(number[1]) > MAX_ENTRY_COUNT:
        return InvalidSetting("proof", value)
    return msgspec.structs.replace(before, proof=int(number[1]))


def _with_template(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    template = entry_templates.normalize(value)
    if off or usual:
        return msgspec.structs.replace(before, template="" if off else None)
    if (
        "$" not in template
        or not entry_templates.is_short_enough(template)
        or entry_templates.unknown_variables(template)
    ):
        return InvalidSetting("format", template, entry_templates.unknown_variables(template))
    return msgspec.structs.replace(before, template=template)


def change_filters(rules: tuple[FilterRule, ...], word: str, rest: str) -> tuple[FilterRule, ...] | Reply:
    """Return filters after ``deny words``, ``allow words`` or ``off number``; or what is wrong with that."""
    if word in OFF or word in ("remove", "delete"):
        number = _NUMBER.fullmatch(rest)
        if not rest:
            return ()
        if number is None or not 1 <= int(number[1]) <= len(rules):
            return NoSuchFilter()
        return tuple(rule for place, rule in enumerate(rules, 1) if place != int(number[1]))
    kind = _KINDS.get(word)
    if kind is None or not rest:
        return MissingArgument("filter")
    rule = FilterRule(allow=kind, test=parse_condition(rest))
    if rule in rules:
        return rules
    return (*rules, rule) if len(rules) < MAX_RULES else TooManyFilters(MAX_RULES)
