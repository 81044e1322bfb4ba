"""Parser of setting values: `quiet 22:00-07:00 mon-fri`, `every 2 hours`, `mute=on`.

For invalid input, functions return None, or a reply that explains the error. Names of days may be shortened to their
first three letters in any language of the bot, with or without accents, because no two languages conflict; German names
may also be shortened to two letters.
"""

import re
from typing import Final

import msgspec

from bots.commands.parser import MAX_ENTRY_COUNT, InitialSettings
from bots.dialogue.reply import Reply, failure, missing_argument
from bots.i18n.translator import LANGUAGES, Translator, find_language, normalize_words
from bots.replies import entry_templates
from bots.replies.help_texts import help_text
from bots.replies.settings_texts import invalid_setting_text, languages_text, unknown_variables_text
from service.feeds.parsing.html_text import one_line
from service.users.preferences import (
    FOR_ALL,
    MAX_INTERVAL_S,
    MAX_RULES,
    MIN_INTERVAL_S,
    FilterRule,
    Preferences,
    parse_condition,
)
from service.users.quiet_hours import DAYS, EVERY_DAY, DigestSchedule, QuietHours, UserSettings, find_time_zones

ON_WORDS: Final = frozenset(("on", "yes", "true", "an", "ein", "ja", "oui", "activer", "activé", "sí", "si", "activar"))
OFF_WORDS: Final = frozenset(
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
_TWO_LETTER_DAYS: Final = ("mo", "di", "mi", "do", "fr", "sa", "so")
_MIN_DAY_CHARS: Final = 3

DAY_GROUPS: Final = {
    **dict.fromkeys(("weekdays", "werktags", "wochentags", "laborables"), _WEEKDAYS),
    **dict.fromkeys(("weekend", "weekends", "wochenende", "wochenenden", "week-end", "week-ends", "finde"), _WEEKEND),
    **dict.fromkeys(("daily", "always", "taglich", "immer", "toujours", "diario", "siempre"), EVERY_DAY),
}

SCHEDULES: Final = {
    **dict.fromkeys(("hourly", "stundlich", "horaire", "toutes les heures", "cada hora"), "hour"),
    **dict.fromkeys(("daily", "taglich", "jeden tag", "quotidien", "tous les jours"), "day"),
    **dict.fromkeys(("chaque jour", "diario", "diariamente", "cada dia"), "day"),
    **dict.fromkeys(("weekly", "wochentlich", "jede woche", "hebdomadaire", "toutes les semaines"), "week"),
    **dict.fromkeys(("chaque semaine", "semanal", "semanalmente", "cada semana"), "week"),
}

AT_ONCE_WORDS: Final = frozenset(
    ("right away", "at once", "sofort", "tout de suite", "aussitot", "immediatement", "de inmediato", "enseguida")
)
EVERY_WORDS: Final = re.compile(
    r"^(?:at most (?:once )?|every |alle |jede[nrs]? |tou(?:te)?s les |chaque |cada |tod[ao]s l[ao]s )+"
)
UNITS_S: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds", "sek", "sekunde", "sekunden"), 1),
    **dict.fromkeys(("seconde", "secondes", "seg", "segundo", "segundos"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minuten", "minuto", "minutos"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden"), 3_600),
    **dict.fromkeys(("heure", "heures", "hora", "horas"), 3_600),
    **dict.fromkeys(("d", "day", "days", "tag", "tage", "tagen", "j", "jour", "jours", "dia", "dias"), 86_400),
    **dict.fromkeys(("w", "week", "weeks", "woche", "wochen", "semaine", "semaines", "semana", "semanas"), 604_800),
}

FROM_WORDS: Final = re.compile(r"^(?:from|von|de)\s+")
TO_WORDS: Final = re.compile(r"\s*(?:-|–|\b(?:to|bis|hasta|a)\b)\s*")  # noqa: RUF001 - people type it
AT_WORDS: Final = re.compile(r"\s(?:at|um|a las|a)\s")

_TIME = re.compile(r"(\d{1,2})(?:h|[:.h](\d{2}))?")
_DURATION = re.compile(r"\s*([0-9]{1,6})\s*([a-z]+)\.?(?![a-z])")
_SCHEDULE_INTERVALS_S: Final = {"hour": 3_600, "day": 86_400, "week": 604_800}
_HOURS_PER_DAY: Final = 24
_MINUTES_PER_HOUR: Final = 60
_MAX_TITLE_CHARS: Final = 120
_EXAMPLE_NUMBER: Final = 3
"""The number of the subscription in examples, unless the command names one."""
_DEFAULT: Final = frozenset(("default", "usual", "standard", "défaut", "predeterminado"))
SETTING_OF_NAME: Final = {
    **dict.fromkeys(("mute", "muted", "stumm", "muet", "silenciar"), "mute"),
    **dict.fromkeys(("title", "name", "titel", "titre", "título", "titulo", "nombre", "nom"), "title"),
    **dict.fromkeys(("edits", "edit", "corrections", "änderungen", "modifications", "ediciones"), "edits"),
    **dict.fromkeys(("format", "template", "vorlage", "modèle", "plantilla", "formato"), "format"),
    **dict.fromkeys(("proof", "latest", "beweis", "neueste", "preuve", "derniers", "prueba", "últimos"), "proof"),
    **dict.fromkeys(("interval", "every", "intervall", "intervalle", "intervalo"), "interval"),
}
_IS_ALLOW: Final = {
    **dict.fromkeys(("allow", "only", "nur", "erlauben", "seulement", "autoriser", "solo", "sólo", "permitir"), True),
    **dict.fromkeys(("deny", "not", "without", "block", "hide", "ohne", "sans", "refuser", "sin", "denegar"), False),
}
_PRESENCE: Final = frozenset(("presence", "away", "präsenz", "anwesenheit", "présence", "presencia"))
_AUTOMATIC: Final = frozenset(("auto", "automatic", "automatisch", "automatique", "automático", "automatico"))
_NUMBER = re.compile(r"#?([0-9]{1,3})")


def _parse_day(name: str) -> int | None:
    """Return the number of a day of the week, 0 for Monday; None if ``name`` is neither a name nor an abbreviation."""
    if name in _TWO_LETTER_DAYS:
        return _TWO_LETTER_DAYS.index(name)
    if len(name) < _MIN_DAY_CHARS:
        return None
    return next((number for number, names in enumerate(_DAYS) if any(full.startswith(name) for full in names)), None)


def set_quiet_hours(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with the quiet hours in ``words``, or the reply about an error.

    ``words`` are hours and days, a word for "off" to remove the quiet hours, or ``presence``, which makes messages wait
    while the user is away.
    """
    if words.lower() in OFF_WORDS:
        return msgspec.structs.replace(user_settings, quiet=None, heeds_presence=False)
    if words.lower() in _PRESENCE:
        return msgspec.structs.replace(user_settings, heeds_presence=True)
    hours = parse_quiet_hours(words)
    return msgspec.structs.replace(user_settings, quiet=hours) if hours else _invalid_time("quiet", words, translator)


def set_digest(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with the digest schedule in ``words``, or the reply about an error.

    A word for "off" removes the schedule.
    """
    schedule = None
    if words.lower() not in OFF_WORDS and (schedule := parse_digest(words)) is None:
        return _invalid_time("digest", words, translator)
    return msgspec.structs.replace(user_settings, digest=schedule)


def _invalid_time(verb: str, words: str, translator: Translator) -> Reply:
    sentence = translator.gettext("I don't understand “{words}” here.", words=one_line(words, 60))
    return failure(f"{sentence}\n{help_text(verb, translator)}")


def set_time_zone(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with the time zone that ``words`` name, or the reply about an error."""
    zones, quoted = find_time_zones(words), one_line(words, 60)
    if len(zones) == 1:
        return msgspec.structs.replace(user_settings, zone=zones[0])
    if not zones:
        return failure(
            translator.gettext(
                "I don't know the time zone “{words}”. Name a large city in it, e.g. `timezone Berlin`, or use the "
                "zone's full name, e.g. `timezone America/New_York`.",
                words=quoted,
            )
        )
    commands = translator.format_alternatives([f"`timezone {name}`" for name in zones])
    return failure(
        translator.gettext(
            "There's more than one “{words}”. Which do you mean: {commands}?", words=quoted, commands=commands
        )
    )


def set_language(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with the language that ``words`` name, or the reply about an error."""
    is_automatic = words.lower() in _AUTOMATIC
    language = "" if is_automatic else find_language(words)
    if not language and not is_automatic:
        sentence = translator.gettext("I don't speak “{words}”.", words=one_line(words, 60))
        return failure(f"{sentence} {languages_text(LANGUAGES, translator)}")
    return msgspec.structs.replace(user_settings, language=language)


def set_announcements(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with announcements turned on or off, as ``words`` say, or the reply about an error."""
    word = words.lower()
    if word not in ON_WORDS | OFF_WORDS:
        return missing_argument("announcements", translator)
    return msgspec.structs.replace(user_settings, announcements=word in ON_WORDS)


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
    """Return a time of day in minutes after midnight, where 24:00 is 0; None for other text."""
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
    for part in re.split(r"[,\s]+", words.strip()):
        first, dash, last = part.partition("-")
        begin, end = _parse_day(first), _parse_day(last) if dash else _parse_day(first)
        if begin is None or end is None:
            return None
        found.update((begin + number) % len(DAYS) for number in range((end - begin) % len(DAYS) + 1))
    return tuple(sorted(found))


def apply_settings(before: Preferences, settings: InitialSettings, translator: Translator) -> Preferences | Reply:
    """Return the preferences ``before`` changed by these settings, or the reply about an error in one setting."""
    for key, value in settings:
        changed = change_setting(before, key, value, translator)
        if not isinstance(changed, Preferences):
            return changed
        before = changed
    return before


def change_setting(  # noqa: C901, PLR0911, PLR0912 - one arm per key
    before: Preferences, name: str, value: str, translator: Translator, number: int = _EXAMPLE_NUMBER
) -> Preferences | Reply:
    """Return the preferences ``before`` with one setting changed, or the reply about an error.

    ``name`` and ``value`` are as the user typed them. ``number`` is the number of the subscription, ``FOR_ALL`` if the
    preferences are for all subscriptions.
    """
    key, value = SETTING_OF_NAME.get(name.lower(), ""), value.strip()
    is_default = value.lower() in _DEFAULT
    is_off = value.lower() in OFF_WORDS
    is_on = None if is_default else value.lower() in ON_WORDS
    match key:
        case "":
            return failure(
                translator.gettext(
                    "There is no setting “{words}”. You can set mute, title, edits, interval, format and latest; `help "
                    "set` explains them.",
                    words=one_line(name, 40),
                )
            )
        case "interval":
            if is_off or is_default or normalize_words(value) in AT_ONCE_WORDS:
                return msgspec.structs.replace(before, interval_s=None if is_default else 0)
            seconds = parse_interval_s(value)
            if seconds is not None and MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
                return msgspec.structs.replace(before, interval_s=seconds)
        case "mute" if is_off or is_on or is_default:
            return msgspec.structs.replace(before, muted=bool(is_on))
        case "edits" if is_off or is_on or is_default:
            return msgspec.structs.replace(before, edits=is_on)
        case "proof":
            if is_off or is_default or is_on:
                return msgspec.structs.replace(before, proof=0 if is_off else None)
            if (count := _NUMBER.fullmatch(value)) is not None and int(count[1]) <= MAX_ENTRY_COUNT:
                return msgspec.structs.replace(before, proof=int(count[1]))
        case "title" if number != FOR_ALL and value:
            title = "" if is_off or is_default else one_line(value, _MAX_TITLE_CHARS)
            return msgspec.structs.replace(before, title=title)
        case "format":
            if is_off or is_default:
                return msgspec.structs.replace(before, template="" if is_off else None)
            template = entry_templates.normalize(value)
            is_valid = "$" in template and entry_templates.is_short_enough(template)
            if unknown := entry_templates.unknown_variables(template):
                return failure(unknown_variables_text(unknown, translator))
            if is_valid:
                return msgspec.structs.replace(before, template=template)
    return failure(invalid_setting_text(key, value, translator, number=number or _EXAMPLE_NUMBER))


def change_filters(  # noqa: PLR0911 - one for each error
    rules: tuple[FilterRule, ...], word: str, rest: str, translator: Translator
) -> tuple[FilterRule, ...] | Reply:
    """Return the filter rules after one change, or the reply about an error.

    ``word`` is ``deny`` or ``allow`` to add a rule with the words in ``rest``. It is ``off`` to remove the rule with
    the number ``rest``, or all rules if ``rest`` is empty.
    """
    if word in OFF_WORDS or word in ("remove", "delete"):
        number = _NUMBER.fullmatch(rest)
        if not rest:
            return ()
        if number is not None and 1 <= int(number[1]) <= len(rules):
            return tuple(rule for place, rule in enumerate(rules, 1) if place != int(number[1]))
        return failure(
            translator.gettext(
                "There is no filter with that number. `filter #3` shows the filters of one subscription; `filter` "
                "alone shows those that apply to all."
            )
        )
    is_allow = _IS_ALLOW.get(word)
    if is_allow is None or not rest:
        return missing_argument("filter", translator)
    rule = FilterRule(allow=is_allow, test=parse_condition(rest))
    if rule in rules:
        return rules
    if len(rules) < MAX_RULES:
        return (*rules, rule)
    return failure(
        translator.ngettext(
            "You already have {count} filter here, the maximum. One /regular expression/ can replace several.",
            "You already have {count} filters here, the maximum. One /regular expression/ can replace several.",
            MAX_RULES,
        )
    )
