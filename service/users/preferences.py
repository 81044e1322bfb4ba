"""A user's preferences for notifications of subscriptions: mute, title, edits, template, filters, interval.

A user has preferences for each subscription, by its number, and preferences for all subscriptions (``FOR_ALL``). A
change is delivered if the mutes and filters of both allow it. For edits, template and interval, the preferences for the
subscription override those for all.

Filters are rules over words, phrases and regular expressions (RE2). A change is allowed if no deny rule matches and, if
there are allow rules, at least one of them matches. Words are normalised as in the channel directory; matching a
regular expression takes time linear in the text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from service.discovery.queries.query import PhraseCondition
from service.discovery.queries.saved_searches import PatternCondition, SearchableEntry, matches, validate_pattern
from service.discovery.word_analysis import words
from service.errors import BadQuery
from service.feeds.entries.version_parts import is_edit
from service.model import Change, Delta

MAX_RULES: Final = 50
"""Maximum number of rules of one subscription, or for all subscriptions."""
MAX_WORDS_PER_RULE: Final = 50
_QUOTES = '"“”„«»'


class AnyWord(msgspec.Struct, frozen=True, tag="words"):
    """A condition that text fulfils if it contains at least one of ``words``."""

    words: tuple[str, ...]


Condition = AnyWord | PhraseCondition | PatternCondition


class FilterRule(msgspec.Struct, frozen=True):
    """A filter rule, which allows or denies the changes that match its condition.

    A change is delivered if it matches at least one allow rule, or there is none, and if it matches no deny rule.
    """

    allow: bool
    test: Condition


FOR_ALL: Final = 0
"""The number under which preferences for all subscriptions are stored."""
MIN_INTERVAL_S: Final = 60
MAX_INTERVAL_S: Final = 7 * 86_400
DIGEST_TOLERANCE_S: Final = 600
"""Subtracted from the interval between messages of a user with digests, so that the digest that follows a slightly late
one is not too early."""


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user's preferences for one subscription, or for all; None means that a preference is not set.

    ``title`` is the user's own name for the channel. ``edits`` states whether edited entries are delivered.
    ``template`` is the text template of entries; "" means the default format. ``proof`` is the number of latest entries
    shown when a subscription begins. ``interval_s`` is the minimum time between two messages; 0 means that there is no
    minimum.
    """

    muted: bool = False
    title: str = ""
    edits: bool | None = None
    template: str | None = None
    proof: int | None = None
    interval_s: int | None = None
    rules: tuple[FilterRule, ...] = ()


NO_PREFERENCES: Final = Preferences()
DEFAULT_PROOF: Final = 1

PreferencesByNumber = Mapping[int, Preferences]
"""One user's preferences by subscription number, with ``FOR_ALL``; a missing number means ``NO_PREFERENCES``."""


def are_edits_enabled(preferences: PreferencesByNumber, number: int) -> bool:
    """Return whether edited entries of subscription ``number`` are delivered (default: yes)."""
    own, general = _both(preferences, number)
    if own.edits is not None:
        return own.edits
    return True if general.edits is None else general.edits


def effective_template(preferences: PreferencesByNumber, number: int) -> str:
    """Return the text template for entries of subscription ``number``; "" means the default format."""
    own, general = _both(preferences, number)
    return (own.template if own.template is not None else general.template) or ""


def effective_interval_s(preferences: PreferencesByNumber, number: int) -> int:
    """Return the minimum time between messages of subscription ``number`` in seconds; 0 means no minimum."""
    own, general = _both(preferences, number)
    return (own.interval_s if own.interval_s is not None else general.interval_s) or 0


def has_filters(preferences: PreferencesByNumber) -> bool:
    """Return whether :func:`suppressed_positions` can suppress a change of any subscription."""
    return any(each.muted or each.rules or each.edits is False for each in preferences.values())


def has_intervals(preferences: PreferencesByNumber) -> bool:
    """Return whether any subscription has a minimum time between messages."""
    return any(each.interval_s for each in preferences.values())


def earliest_send_s(queued_s: float, last_message_s: float | None, interval_s: float) -> float:
    """Return the earliest time (Unix s) at which an item of a channel may be sent to a user.

    The item, which was queued at ``queued_s``, waits until ``interval_s`` seconds have passed since ``last_message_s``,
    the time of the channel's last message to the user (None if there was none). An item that was queued before that
    message, but did not fit into it, does not wait. The interval does not affect how often the channel is polled.
    """
    if last_message_s is None or queued_s <= last_message_s:
        return queued_s
    return max(queued_s, last_message_s + interval_s)


def suppressed_positions(
    preferences: PreferencesByNumber,
    number: int,
    versions: Iterable[tuple[Delta, Sequence[SearchableEntry]]],
    *,
    edits: bool,
) -> tuple[int, ...] | None:
    """Return the positions of the changes that must not be delivered; None if no change may be delivered.

    ``versions`` are the deltas of one outbox item, each with the texts of its changes from :func:`build_subjects`.
    Positions count through the changes of all deltas, from 0. The item has only the edits of these deltas if ``edits``
    is true, otherwise only the other changes. Notices are not filtered, but a muted subscription delivers none.
    """
    both = _both(preferences, number)
    if any(each.muted for each in both) or (edits and not are_edits_enabled(preferences, number)):
        return None
    suppressed, has_content, first = [], False, 0
    for delta, subjects in versions:
        has_content = has_content or delta.notice is not None
        for position, (change, subject) in enumerate(zip(delta.changes, subjects, strict=True), first):
            if is_edit(change) is not edits:
                continue
            if all(is_allowed(each.rules, subject) for each in both):
                has_content = True
            else:
                suppressed.append(position)
        first += len(delta.changes)
    return tuple(suppressed) if has_content or not suppressed else None


def _both(preferences: PreferencesByNumber, number: int) -> tuple[Preferences, Preferences]:
    return preferences.get(number, NO_PREFERENCES), preferences.get(FOR_ALL, NO_PREFERENCES)


def is_allowed(rules: Sequence[FilterRule], subject: SearchableEntry) -> bool:
    """Return whether filter rules allow the delivery of a change; ``subject`` is the text of the change."""
    if any(_matches(subject, rule.test) for rule in rules if not rule.allow):
        return False
    allowing = [rule.test for rule in rules if rule.allow]
    return not allowing or any(_matches(subject, test) for test in allowing)


def build_subjects(changes: Iterable[Change]) -> tuple[SearchableEntry, ...]:
    """Return, for each change, the texts that filter rules examine: title, summary, tags, a page's previous text."""
    subjects = []
    for change in changes:
        parts = (change.entry.summary, change.before, *change.entry.tags)
        text = "\n".join(filter(None, parts))
        subjects.append(SearchableEntry(msgspec.structs.replace(change.entry, summary=text, tags=(), authors=())))
    return tuple(subjects)


def parse_condition(text: str) -> Condition:
    """Return the condition that a user wrote: ``"a phrase"``, ``/a regular expression/``, or words.

    Plain words match if any of them occurs. Raises :class:`BadQuery`.
    """
    text = text.strip()
    if len(text) > len("//") and text.startswith("/") and text.endswith("/"):
        return validate_pattern(PatternCondition(text[1:-1]))
    found = tuple(words(text, include_common=True))
    if not found:
        raise BadQuery('There are no words in that. Use words, "a phrase" or /a regular expression/.')
    if len(found) > MAX_WORDS_PER_RULE:
        raise BadQuery("That's {count} words; the maximum is {most}.", count=len(found), most=MAX_WORDS_PER_RULE)
    quoted = len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES
    return PhraseCondition(found) if quoted else AnyWord(tuple(dict.fromkeys(found)))


def format_condition(test: Condition) -> str:
    """Return a condition in the syntax that :func:`parse_condition` reads."""
    match test:
        case AnyWord(found):
            return " ".join(found)
        case PhraseCondition(found):
            return f'"{" ".join(found)}"'
        case PatternCondition(expression):
            return f"/{expression}/"


def _matches(subject: SearchableEntry, test: Condition) -> bool:
    return not subject.words.isdisjoint(test.words) if isinstance(test, AnyWord) else matches(test, subject)
