"""Filters of subscriptions: rules that decide which changes are delivered.

A rule allows or denies the changes that match its condition: words, a phrase, or a regular expression (RE2). A change
is delivered if it matches no deny rule and, if there are any allow rules, matches at least one of them.

Words match regardless of case and accents. Matching a regular expression takes time linear in the length of the text.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from service.discovery.queries.query import PhraseCondition
from service.discovery.queries.saved_searches import PatternCondition, SearchableEntry, matches, validate_pattern
from service.discovery.word_analysis import words
from service.errors import BadQuery
from service.model import Change

MAX_RULES: Final = 50
"""Maximum number of rules for one subscription, and maximum number of rules that apply to all subscriptions."""
MAX_WORDS_PER_RULE: Final = 50
_QUOTES = '"“”„«»'


class AnyWord(msgspec.Struct, frozen=True, tag="words"):
    """A condition that a text fulfils if it contains at least one of ``words``."""

    words: tuple[str, ...]


Condition = AnyWord | PhraseCondition | PatternCondition


class FilterRule(msgspec.Struct, frozen=True):
    """A filter rule, which allows or denies the changes that fulfil the condition ``test``.

    A change is delivered if it matches no deny rule and, if there are any allow rules, matches at least one of them.
    """

    allow: bool
    test: Condition


def is_allowed(rules: Sequence[FilterRule], subject: SearchableEntry) -> bool:
    """Return whether ``rules`` allow a change to be delivered; ``subject`` is the text of the change."""
    if any(_matches(subject, rule.test) for rule in rules if not rule.allow):
        return False
    allowing = [rule.test for rule in rules if rule.allow]
    return not allowing or any(_matches(subject, test) for test in allowing)


def build_subjects(changes: Iterable[Change]) -> tuple[SearchableEntry, ...]:
    """Convert each change to an entry that contains the text of the change, so that filter rules can be applied to it.

    - The title is that of the changed entry.
    - The summary consists of the changed entry's summary, the text that the change replaced (if any), and the tags.
    """
    subjects = []
    for change in changes:
        parts = (change.entry.summary, change.before, *change.entry.tags)
        text = "\n".join(filter(None, parts))
        subjects.append(SearchableEntry(msgspec.structs.replace(change.entry, summary=text, tags=(), authors=())))
    return tuple(subjects)


def parse_condition(text: str) -> Condition:
    """Parse a condition that a user wrote: ``"a phrase"``, ``/a regular expression/``, or words.

    A text fulfils a condition of several words if it contains at least one of them. Raises :class:`BadQuery` if the
    condition is invalid.
    """
    text = text.strip()
    if len(text) > len("//") and text.startswith("/") and text.endswith("/"):
        return validate_pattern(PatternCondition(text[1:-1]))
    found = tuple(words(text, include_common=True))
    if not found:
        raise BadQuery('I can\'t find any words in that. Use words, "a phrase" or /a regular expression/.')
    if len(found) > MAX_WORDS_PER_RULE:
        raise BadQuery("That's {count} words; the maximum is {most}.", count=len(found), most=MAX_WORDS_PER_RULE)
    quoted = len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES
    return PhraseCondition(found) if quoted else AnyWord(tuple(dict.fromkeys(found)))


def format_condition(condition: Condition) -> str:
    """Format a condition in the syntax that :func:`parse_condition` reads."""
    match condition:
        case AnyWord(found):
            return " ".join(found)
        case PhraseCondition(found):
            return f'"{" ".join(found)}"'
        case PatternCondition(expression):
            return f"/{expression}/"


def _matches(subject: SearchableEntry, test: Condition) -> bool:
    return not subject.words.isdisjoint(test.words) if isinstance(test, AnyWord) else matches(test, subject)
