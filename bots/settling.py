"""The part of the dialogue that is about when a person wants to hear from us, and in which language."""

from collections.abc import Generator
from typing import Any

import msgspec

from bots import commands, wishes
from bots.asking import MyHabits, Request, SetHabits
from bots.exchange import (
    HabitsTold,
    LanguageTold,
    NoSuchLanguage,
    NoSuchZone,
    Reply,
    UnreadableTime,
)
from bots.switches import OFF
from bots.voice import SOURCE, language_named, spoken
from service.habits import Habits, zone_named

_PRESENCE = frozenset(("presence", "away", "präsenz", "anwesenheit", "présence", "presencia"))
_AUTOMATIC = frozenset(("auto", "automatic", "automatisch", "automatique", "automático", "automatico"))


def settled(command: commands.Quiet | commands.Digest | commands.Timezone) -> Generator[Request, Any, Reply]:
    """Change what the command names, or tell how it is."""
    habits: Habits = yield MyHabits()
    words = command.words.strip()
    if not words:
        return HabitsTold(habits)
    changed = _changed(habits, command, words)
    if not isinstance(changed, Habits):
        return changed
    yield SetHabits(changed)
    return HabitsTold(changed, changed=True)


def spoken_with(command: commands.Language) -> Generator[Request, Any, Reply]:
    """Change the language we speak with a person, or tell which it is."""
    habits: Habits = yield MyHabits()
    words = command.words.strip()
    if not words:
        return LanguageTold(spoken(habits.speaks) or SOURCE)
    language = "" if words.lower() in _AUTOMATIC else language_named(words)
    if not language and words.lower() not in _AUTOMATIC:
        return NoSuchLanguage(words)
    habits = msgspec.structs.replace(habits, language=language)
    yield SetHabits(habits)
    return LanguageTold(spoken(habits.speaks) or SOURCE, changed=True)


def _changed(
    habits: Habits, command: commands.Quiet | commands.Digest | commands.Timezone, words: str
) -> Habits | UnreadableTime | NoSuchZone:
    off = words.lower() in OFF
    match command:
        case commands.Quiet():
            return _quieted(habits, words, off=off)
        case commands.Digest():
            digest = None if off else wishes.digest(words)
            if digest or off:
                return msgspec.structs.replace(habits, digest=digest)
            return UnreadableTime("digest", words)
        case commands.Timezone():
            zones = zone_named(words)
            return msgspec.structs.replace(habits, zone=zones[0]) if len(zones) == 1 else NoSuchZone(words, zones)


def _quieted(habits: Habits, words: str, *, off: bool) -> Habits | UnreadableTime:
    if off:
        return msgspec.structs.replace(habits, quiet=None, heeds_presence=False)
    if words.lower() in _PRESENCE:
        return msgspec.structs.replace(habits, heeds_presence=True)
    quiet = wishes.quiet(words)
    return msgspec.structs.replace(habits, quiet=quiet) if quiet else UnreadableTime("quiet", words)
