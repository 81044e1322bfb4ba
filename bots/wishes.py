"""What people write of settings, as values: `quiet 22:00-07:00 mon-fri`, `every 2 hours`, `mute=on`. Pure.

What is not understood is None, or the reply that says so.
"""

import re
from typing import Final

import msgspec

from bots import templates, times
from bots.commands import MOST_SHOWN
from bots.replies.help import Incomplete
from bots.replies.parts import Reply
from bots.replies.settings import (
    FiltersFull,
    NoSuchFilter,
    NoSuchSetting,
    NoSuchZone,
    UnreadableSetting,
    UnreadableTime,
)
from bots.replies.subscriptions import Wishes
from service.feeds.text import one_line
from service.habits import DAYS, EVERY_DAY, Digest, Habits, Quiet, zone_named
from service.preferences import LEAST_INTERVAL_S, MOST_INTERVAL_S, MOST_RULES, Preferences, Rule, parse_test

ON: Final = frozenset(("on", "yes", "true", "an", "ein", "ja", "oui", "activer", "activé", "sí", "si", "activar"))
OFF: Final = frozenset(
    ("off", "none", "no", "never", "stop", "aus", "nein", "nie", "non", "jamais", "arrêt", "nunca", "desactivar")
)

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


def quieted(habits: Habits, words: str) -> Habits | Reply:
    """Return habits with these quiet hours, ``off`` or ``presence``."""
    if words.lower() in OFF:
        return msgspec.structs.replace(habits, quiet=None, heeds_presence=False)
    if words.lower() in _PRESENCE:
        return msgspec.structs.replace(habits, heeds_presence=True)
    hours = quiet(words)
    return msgspec.structs.replace(habits, quiet=hours) if hours else UnreadableTime("quiet", words)


def gathered(habits: Habits, words: str) -> Habits | Reply:
    """Return habits with this digest, or ``off``."""
    off = words.lower() in OFF
    rhythm = None if off else digest(words)
    return msgspec.structs.replace(habits, digest=rhythm) if rhythm or off else UnreadableTime("digest", words)


def zoned(habits: Habits, words: str) -> Habits | Reply:
    """Return habits with the time zone of this name."""
    zones = zone_named(words)
    return msgspec.structs.replace(habits, zone=zones[0]) if len(zones) == 1 else NoSuchZone(words, zones)


def quiet(words: str) -> Quiet | None:
    """Return hours to be quiet, from ``HH:MM-HH:MM`` and perhaps days: ``mon-fri``, ``sat,sun``, ``weekdays``."""
    hours, _, days = times.TO.sub("-", times.FROM.sub("", times.bare(words))).partition(" ")
    begins, dash, ends = hours.partition("-")
    first, last, chosen = _minute(begins), _minute(ends), _days(days) if days.strip() else EVERY_DAY
    if not dash or first is None or last is None or chosen is None:
        return None
    return Quiet(first, last, chosen)


def digest(words: str) -> Digest | None:
    """Return how to gather news, from ``hourly``, ``daily HH:MM`` or ``weekly DAY HH:MM``; times may be left out."""
    plain = f"{times.bare(words)} "
    named = next((name for name in times.RHYTHMS if plain.startswith(f"{name} ")), None)
    if named is None:
        return None
    rest = times.AT.sub(" ", f" {plain.removeprefix(named).strip()}").split()
    at = _minute(rest[-1]) if rest else None
    before = rest[:-1] if at is not None else rest
    found = Digest("day") if at is None else Digest("day", at)
    match times.RHYTHMS[named], before:
        case "hour", [] if not rest:
            return Digest("hour")
        case "day", []:
            return found
        case "week", []:
            return Digest("week", found.at)
        case "week", [name] if (day := times.day(name)) is not None:
            return Digest("week", found.at, day)
    return None


def interval_s(words: str) -> int | None:
    """Return how far apart to tell, in seconds, from ``10m``, ``1h 30m``, ``every 2 days`` or ``hourly``."""
    plain = times.bare(words)
    if plain in times.RHYTHMS:
        return _RHYTHMS_S[times.RHYTHMS[plain]]
    plain = times.EVERY.sub("", plain)
    if plain in times.UNITS_S:
        return times.UNITS_S[plain]
    parts = [(int(each[1]), times.UNITS_S.get(each[2])) for each in _SPAN.finditer(plain)]
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
    if (named := times.NAMED_DAYS.get(words.strip())) is not None:
        return named
    found: set[int] = set()
    for part in re.split(r"[,\s]+", words.strip()):
        first, dash, last = part.partition("-")
        begin, end = times.day(first), times.day(last) if dash else times.day(first)
        if begin is None or end is None:
            return None
        found.update((begin + number) % len(DAYS) for number in range((end - begin) % len(DAYS) + 1))
    return tuple(sorted(found))


def wished(before: Preferences, wishes: Wishes) -> Preferences | Reply:
    """Return what is wanted of one subscription after these wishes; or what is wrong with one of them."""
    for key, value in wishes:
        changed = preferred(before, key, value, for_all=False)
        if not isinstance(changed, Preferences):
            return changed
        before = changed
    return before


def preferred(before: Preferences, named: str, value: str, *, for_all: bool) -> Preferences | Reply:  # noqa: PLR0911 - one arm per key
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
            return UnreadableSetting(key, value)
        case "mute":
            return msgspec.structs.replace(before, muted=bool(switched))
        case "edits":
            return msgspec.structs.replace(before, edits=switched)
        case "proof":
            return _with_proof(before, value, off=off, usual=usual)
        case "title" if for_all or not value:
            return UnreadableSetting(key, value)
        case "title":
            title = "" if off or usual else one_line(value, _MOST_TITLE_CHARS)
            return msgspec.structs.replace(before, title=title)
        case _:
            return _with_template(before, value, off=off, usual=usual)


def _with_interval(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    seconds = interval_s(value)
    if off or usual or times.bare(value) in times.AT_ONCE:
        return msgspec.structs.replace(before, interval_s=None if usual else 0)
    if seconds is None or not LEAST_INTERVAL_S <= seconds <= MOST_INTERVAL_S:
        return UnreadableSetting("interval", value)
    return msgspec.structs.replace(before, interval_s=seconds)


def _with_proof(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    number = _NUMBER.fullmatch(value)
    if off or usual or value.lower() in ON:
        return msgspec.structs.replace(before, proof=0 if off else None)
    if number is None or int(number[1]) > MOST_SHOWN:
        return UnreadableSetting("proof", value)
    return msgspec.structs.replace(before, proof=int(number[1]))


def _with_template(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    template = templates.tidy(value)
    if off or usual:
        return msgspec.structs.replace(before, template="" if off else None)
    if "$" not in template or not templates.fits(template) or templates.strangers(template):
        return UnreadableSetting("format", template, templates.strangers(template))
    return msgspec.structs.replace(before, template=template)


def filtered(rules: tuple[Rule, ...], word: str, rest: str) -> tuple[Rule, ...] | Reply:
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
        return Incomplete("filter")
    rule = Rule(allow=kind, test=parse_test(rest))
    if rule in rules:
        return rules
    return (*rules, rule) if len(rules) < MOST_RULES else FiltersFull(MOST_RULES)
