"""What a person does not want to read: rules over words, phrases and regular expressions (RE2). Pure.

A change passes if no rule denies it and, where there are rules that allow, one of them does. Words are compared as the
directory compares them; an expression takes time linear in the text.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from service.discovery import grammar
from service.discovery.pairs import words
from service.discovery.standing import Pattern, Phrase, Subject, checked, matches
from service.errors import BadQuery
from service.model import Change

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
    return " ".join(test.words) if isinstance(test, AnyWord) else grammar.written(test)


def _meets(subject: Subject, test: Test) -> bool:
    return not subject.words.isdisjoint(test.words) if isinstance(test, AnyWord) else matches(test, subject)
