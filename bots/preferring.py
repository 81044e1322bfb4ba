"""The part of the dialogue about what a person wants of their subscriptions: pauses, settings, filters. Pure."""

import re
from collections.abc import Generator
from typing import Any, Final

import msgspec

from bots import commands, templates, times, wishes
from bots.asking import (
    AskWhy,
    Followed,
    MyPreferences,
    PausePlease,
    PutPreferences,
    Request,
    ResumePlease,
)
from bots.exchange import (
    Filters,
    FiltersFull,
    Incomplete,
    NoSuchFilter,
    NoSuchSetting,
    NoSuchSubscription,
    Paused,
    Preferred,
    Reply,
    Resumed,
    UnreadableSetting,
    Wishes,
)
from bots.mine import meant
from bots.switches import OFF, ON
from service.corona.reasons import Reason
from service.errors import CoronetError
from service.feeds.text import one_line
from service.filters import MOST_RULES, Rule, parse_test
from service.preferences import FOR_ALL, LEAST_INTERVAL_S, MOST_INTERVAL_S, NONE, ByNumber, Preferences

Part = Generator[Request, Any, Reply]

MOST_TITLE_CHARS: Final = 120
_USUAL: Final = frozenset(("default", "usual", "standard", "défaut", "predeterminado"))
_KEYS: Final = {
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
_NUMBER = re.compile(r"#?([0-9]{1,3})")


def paused(target: commands.Target) -> Part:
    """Tell nothing of some subscriptions for a while, or of any and of what is watched for."""
    found = yield from meant(target)
    if not found and not target.everything:
        return NoSuchSubscription()
    fresh = yield PausePlease(tuple(followed.channel.id for followed in found), watches=target.everything)
    return Paused(tuple(each for each in found if each.channel.id in fresh), found, everything=target.everything)


def resumed(target: commands.Target) -> Part:
    """Tell of some subscriptions again."""
    found = yield from meant(target)
    if not found and not target.everything:
        return NoSuchSubscription()
    cids = tuple(followed.channel.id for followed in found)
    withheld = yield ResumePlease(cids, watches=target.everything)
    again = tuple(each for each in found if each.channel.id in withheld.withheld)
    return Resumed(again, sum(withheld.withheld.values()), withheld.unheard, everything=target.everything)


def preferred(command: commands.Set) -> Part:
    """Change one setting of a subscription or of all, or tell how they are."""
    one = yield from _one(command.target)
    if isinstance(one, NoSuchSubscription):
        return one
    number, followed = one
    preferences: ByNumber = yield MyPreferences()
    before = preferences.get(number, NONE)
    if not command.key:
        return Preferred(followed, before)
    if _KEYS.get(command.key.lower()) == "proof" and number != FOR_ALL:  # its beginning is past
        return UnreadableSetting("proof", command.value)
    changed = _changed(before, command.key, command.value, for_all=number == FOR_ALL)
    if not isinstance(changed, Preferences):
        return changed
    yield PutPreferences(number, changed)
    if followed is not None and changed.title:
        channel = msgspec.structs.replace(followed.channel, title=changed.title)
        followed = msgspec.structs.replace(followed, channel=channel)
    looks_s = (yield from _looks_s(followed)) if changed.interval_s != before.interval_s else None
    return Preferred(followed, changed, changed=True, looks_s=looks_s)


def _looks_s(followed: Followed | None) -> Generator[Request, Any, float | None]:
    """Return how far apart looks at a channel are on average, None if that cannot be said now."""
    if followed is None:
        return None
    try:
        reason: Reason = yield AskWhy(followed.channel.id)
    except CoronetError:
        return None
    return reason.interval_s / len(reason.turns)


def filtered(command: commands.Filter) -> Part:
    """Add or remove a filter of a subscription or of all, or name them."""
    one = yield from _one(command.target)
    if isinstance(one, NoSuchSubscription):
        return one
    number, followed = one
    preferences: ByNumber = yield MyPreferences()
    before = preferences.get(number, NONE)
    word, rest = (*command.words.split(maxsplit=1), "", "")[:2]
    if not word:
        return Filters(followed, before.rules)
    rules = _filtered(before.rules, word.lower(), rest.strip())
    if not isinstance(rules, tuple):
        return rules
    yield PutPreferences(number, msgspec.structs.replace(before, rules=rules))
    return Filters(followed, rules, changed=True)


def _one(
    target: commands.Target,
) -> Generator[Request, Any, tuple[int, Followed | None] | NoSuchSubscription]:
    """Return the number of what is meant, and the subscription unless it is all of them."""
    if target.everything:
        return FOR_ALL, None
    found = yield from meant(target)
    return (found[0].number, found[0]) if found else NoSuchSubscription()


def wished(before: Preferences, wishes: Wishes) -> Preferences | Reply:
    """Return what is wanted of one subscription after these wishes; or what is wrong with one of them."""
    for key, value in wishes:
        changed = _changed(before, key, value, for_all=False)
        if not isinstance(changed, Preferences):
            return changed
        before = changed
    return before


def _changed(before: Preferences, named: str, value: str, *, for_all: bool) -> Preferences | Reply:  # noqa: PLR0911 - one arm per key
    key, value = _KEYS.get(named.lower(), ""), value.strip()
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
            title = "" if off or usual else one_line(value, MOST_TITLE_CHARS)
            return msgspec.structs.replace(before, title=title)
        case _:
            return _with_template(before, value, off=off, usual=usual)


def _with_interval(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    interval_s = wishes.interval_s(value)
    if off or usual or times.bare(value) in times.AT_ONCE:
        return msgspec.structs.replace(before, interval_s=None if usual else 0)
    if interval_s is None or not LEAST_INTERVAL_S <= interval_s <= MOST_INTERVAL_S:
        return UnreadableSetting("interval", value)
    return msgspec.structs.replace(before, interval_s=interval_s)


def _with_proof(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    number = _NUMBER.fullmatch(value)
    if off or usual or value.lower() in ON:
        return msgspec.structs.replace(before, proof=0 if off else None)
    if number is None or int(number[1]) > commands.MOST_SHOWN:
        return UnreadableSetting("proof", value)
    return msgspec.structs.replace(before, proof=int(number[1]))


def _with_template(before: Preferences, value: str, *, off: bool, usual: bool) -> Preferences | Reply:
    template = templates.tidy(value)
    if off or usual:
        return msgspec.structs.replace(before, template="" if off else None)
    if "$" not in template or not templates.fits(template) or templates.strangers(template):
        return UnreadableSetting("format", template, templates.strangers(template))
    return msgspec.structs.replace(before, template=template)


def _filtered(rules: tuple[Rule, ...], word: str, rest: str) -> tuple[Rule, ...] | Reply:
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
