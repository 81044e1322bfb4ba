"""Filters of subscriptions: rules that decide which changes are delivered.

A rule allows or denies the changes that match its condition: a query as in a search, with the fields of an entry, or a
regular expression (RE2). A change is delivered if it matches no deny rule and, if there are any allow rules, matches at
least one of them.

Matching a regular expression takes time linear in the length of the text.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from service.discovery.av_pairs import Pair, make_pair
from service.discovery.queries.query import PhraseCondition
from service.discovery.queries.query_parser import parse_filter
from service.discovery.queries.saved_searches import PatternCondition, QueryCondition, SearchableEntry, matches
from service.discovery.word_analysis import words
from service.errors import BadQuery
from service.model import Change, Entry

MAX_RULES: Final = 50
"""Maximum number of rules for one subscription, for one folder, and for all subscriptions."""


class AnyWord(msgspec.Struct, frozen=True, tag="words"):
    """A condition that a text fulfils if it contains at least one of ``words``, as written."""

    words: tuple[str, ...]


Condition = QueryCondition | PatternCondition | AnyWord | PhraseCondition
"""The condition of a rule. New rules contain one of the first two; the others were stored before filters had fields."""


class FilterRule(msgspec.Struct, frozen=True):
    """A filter rule, which allows or denies the changes that fulfil the condition ``test``.

    A change is delivered if it matches no deny rule and, if there are any allow rules, matches at least one of them.
    ``text`` is the condition as the user wrote it; "" in rules that were stored before filters had fields.
    """

    allow: bool
    test: Condition
    text: str = ""


def is_allowed(rules: Sequence[FilterRule], subject: SearchableEntry) -> bool:
    """Return whether ``rules`` allow a change to be delivered; ``subject`` is the text of the change."""
    if any(_matches(subject, rule.test) for rule in rules if not rule.allow):
        return False
    allowing = [rule.test for rule in rules if rule.allow]
    return not allowing or any(_matches(subject, test) for test in allowing)


def build_subjects(changes: Iterable[Change]) -> tuple[SearchableEntry, ...]:
    """Convert each change to an entry that contains the text of the change, so that filter rules can be applied to it.

    - The title, the link, the tags and the authors are those of the changed entry. Words and regular expressions are
      not looked for among the authors.
    - The summary consists of the changed entry's summary, and the text that the change replaced (if any).
    """
    subjects = []
    for change in changes:
        text = "\n".join(filter(None, (change.entry.summary, change.before)))
        entry = msgspec.structs.replace(change.entry, summary=text, authors=())
        subject = SearchableEntry(entry, _pairs(change.entry))
        subject.text = "\n".join((subject.text, *entry.tags))
        subjects.append(subject)
    return tuple(subjects)


def _pairs(entry: Entry) -> Iterator[Pair]:
    """Yield the attribute-value pairs for the tags of an entry, and for the names of its authors and their words."""
    names = (name for author in entry.authors for name in (author, *words(author, include_common=True)))
    for attribute, value in (*(("tag", tag) for tag in entry.tags), *(("author", name) for name in names)):
        with suppress(BadQuery):
            yield make_pair(attribute, value)


def parse_rule(text: str, *, allow: bool) -> FilterRule:
    """Parse a condition that a user wrote into a rule, which allows or denies the changes that fulfil it.

    The condition is a query, in which a space means "and", or a regular expression between slashes. Raises
    :class:`BadQuery` if it is invalid.
    """
    text = text.strip()
    return FilterRule(allow, parse_filter(text), text)


def format_condition(rule: FilterRule) -> str:
    """Return the condition of a rule in the syntax that :func:`parse_rule` reads."""
    match rule.test:
        case AnyWord(found):
            return " OR ".join(found)
        case PhraseCondition(found):
            return f'"{" ".join(found)}"'
        case PatternCondition(expression):
            return f"/{expression}/"
        case QueryCondition():
            return rule.text


def _matches(subject: SearchableEntry, test: Condition) -> bool:
    return not subject.words.isdisjoint(test.words) if isinstance(test, AnyWord) else matches(test, subject)
