"""What a person wants to be told of a channel, and how: mutes, titles, edits, templates, filters, intervals. Pure.

Each subscription has preferences of its own, by its number, and there are those for all (``FOR_ALL``). Both have to let
a change pass; what is said of one subscription's edits and template counts before what is said for all.

Filters are rules over words, phrases and regular expressions (RE2). A change passes if no rule denies it and, where
there are rules that allow, one of them does. Words are compared as the directory compares them; an expression takes
time linear in the text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from service.discovery import query_parser
from service.discovery.av_pairs import words
from service.discovery.saved_searches import Pattern, Phrase, Subject, checked, matches
from service.errors import BadQuery
from service.feeds.entries.version_parts import is_edit
from service.model import Change, Delta

MOST_RULES: Final = 50
"""Of one subscription, or for all of them."""
MOST_WORDS: Final = 50
_QUOTES = '"“”„«»'


class AnyWord(msgspec.Struct, frozen=True, tag="words"):
    """All texts in which one of these words stands."""

    words: tuple[str, ...]


Test = AnyWord | Phrase | Pattern


class Rule(msgspec.Struct, frozen=True):
    """``allow``: tell only what meets this test, or another one that allows; else: tell nothing that meets it."""

    allow: bool
    test: Test


FOR_ALL: Final = 0
"""Stands in the place of a subscription's number."""
LEAST_INTERVAL_S: Final = 60
MOST_INTERVAL_S: Final = 7 * 86_400
DIGEST_TAKES_S: Final = 600
"""How late a digest's message may be: the next one is not to wait a whole round for that."""


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one person wants of one subscription, or of all.

    ``title`` is what they call it; ``edits``, whether they are told of edited entries, and ``template``, how entries
    are written ("" for the usual way), are None where nothing was said. ``proof`` is how many of the latest entries are
    shown when a subscription begins. ``interval_s`` is how far apart its messages are at the least, 0 for at once, None
    where nothing was said.
    """

    muted: bool = False
    title: str = ""
    edits: bool | None = None
    template: str | None = None
    proof: int | None = None
    interval_s: int | None = None
    rules: tuple[Rule, ...] = ()


NONE: Final = Preferences()
USUAL_PROOF: Final = 1

ByNumber = Mapping[int, Preferences]
"""One person's preferences, by the numbers of their subscriptions and ``FOR_ALL``; what is absent is ``NONE``."""


def tells_edits(preferences: ByNumber, number: int) -> bool:
    """Say whether a person is told of edits of one subscription."""
    own, general = _both(preferences, number)
    if own.edits is not None:
        return own.edits
    return True if general.edits is None else general.edits


def template(preferences: ByNumber, number: int) -> str:
    """Return the template for one subscription; "" for the usual way."""
    own, general = _both(preferences, number)
    return (own.template if own.template is not None else general.template) or ""


def interval_s(preferences: ByNumber, number: int) -> int:
    """Return how far apart a person wants to be told of one subscription; 0 for at once."""
    own, general = _both(preferences, number)
    return (own.interval_s if own.interval_s is not None else general.interval_s) or 0


def chooses(preferences: ByNumber) -> bool:
    """Say whether :func:`withheld` may find anything of any subscription."""
    return any(each.muted or each.rules or each.edits is False for each in preferences.values())


def spaces(preferences: ByNumber) -> bool:
    """Say whether there is a subscription of which a person is not told at once."""
    return any(each.interval_s for each in preferences.values())


def free_s(queued_s: float, told_s: float | None, interval_s: float) -> float:
    """Return from when on an item of a channel may be sent that was queued at ``queued_s`` (all Unix s).

    What comes after a quiet time may be sent at once; what follows sooner than the interval waits for its end. The
    channel was told last at ``told_s``, None for never: what was queued by then and had no room in that message is
    part of it. How often the channel is polled does not depend on it.
    """
    if told_s is None or queued_s <= told_s:
        return queued_s
    return max(queued_s, told_s + interval_s)


def withheld(
    preferences: ByNumber, number: int, versions: Iterable[tuple[Delta, Sequence[Subject]]], *, edits: bool
) -> tuple[int, ...] | None:
    """Return the positions of changes that a person is not told, counted through; None for everything.

    ``versions`` of one subscription would be told as one, each with its changes as :func:`subjects`
    returns them; ``edits`` says which part of them. Notices pass every filter, but no mute.
    """
    both = _both(preferences, number)
    if any(each.muted for each in both) or (edits and not tells_edits(preferences, number)):
        return None
    left_out, anything, first = [], False, 0
    for delta, seen in versions:
        anything = anything or delta.notice is not None
        for position, (change, subject) in enumerate(zip(delta.changes, seen, strict=True), first):
            if is_edit(change) is not edits:
                continue
            if all(passes(each.rules, subject) for each in both):
                anything = True
            else:
                left_out.append(position)
        first += len(delta.changes)
    return tuple(left_out) if anything or not left_out else None


def _both(preferences: ByNumber, number: int) -> tuple[Preferences, Preferences]:
    return preferences.get(number, NONE), preferences.get(FOR_ALL, NONE)


def passes(rules: Sequence[Rule], subject: Subject) -> bool:
    """Say whether rules let a change pass."""
    if any(_meets(subject, rule.test) for rule in rules if not rule.allow):
        return False
    allowing = [rule.test for rule in rules if rule.allow]
    return not allowing or any(_meets(subject, test) for test in allowing)


def subjects(changes: Iterable[Change]) -> tuple[Subject, ...]:
    """Return changes as rules see them: title, text, tags and, of a page, what stood there before."""
    found = []
    for change in changes:
        parts = (change.entry.summary, change.before, *change.entry.tags)
        found.append(Subject(msgspec.structs.replace(change.entry, summary="\n".join(filter(None, parts))), ()))
    return tuple(found)


def parse_test(text: str) -> Test:
    """Return what ``"a phrase"``, ``/a regular expression/`` or plain words stand for. Raises :class:`BadQuery`."""
    text = text.strip()
    if len(text) > len("//") and text.startswith("/") and text.endswith("/"):
        pattern = Pattern(text[1:-1])
        checked(pattern)
        return pattern
    found = tuple(words(text, common=True))
    if not found:
        raise BadQuery('There is no word in that. Name words, "a phrase" or /a regular expression/.')
    if len(found) > MOST_WORDS:
        raise BadQuery("Those are {count} words; {most} are the most.", count=len(found), most=MOST_WORDS)
    quoted = len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES
    return Phrase(found) if quoted else AnyWord(tuple(dict.fromkeys(found)))


def written(test: Test) -> str:
    """Return a test as :func:`parse_test` reads it."""
    return " ".join(test.words) if isinstance(test, AnyWord) else query_parser.written(test)


def _meets(subject: Subject, test: Test) -> bool:
    return not subject.words.isdisjoint(test.words) if isinstance(test, AnyWord) else matches(test, subject)
