"""Saved searches (``watch``): an index of searches in which each new entry finds the searches that it matches.

The roles of the matrices are reversed: a search is stored under the rarest of its pairs. An entry looks up each of its
own pairs in the index, and matches a search if it has all pairs of the search. Below a pair, searches are stored under
their next rarest one: the rarest may still be common, and the number of unsuccessful comparisons determines the cost of
matching. A phrase is stored under two consecutive words. Regular expressions have no key: each is tried on each entry,
by RE2, in time linear in the text.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, Final

import msgspec
import re2

from service.discovery.av_pairs import Pair, attribute_of, printable, refuse_invisible
from service.discovery.word_analysis import words
from service.errors import BadQuery
from service.model import Entry

MAX_PATTERN_CHARS: Final = 200
MAX_PHRASE_WORDS: Final = 16
_PATTERN_BYTES = 1 << 16
"""Maximum memory of one compiled expression, including its automaton; RE2 refuses larger ones."""
_MAX_COMPILED = 2_000

SavedSearchId = str


class PairsCondition(msgspec.Struct, frozen=True, tag="topic"):
    """Matches entries that have all these pairs."""

    pairs: tuple[Pair, ...]


class PhraseCondition(msgspec.Struct, frozen=True, tag="phrase"):
    """Matches entries whose title or text contains these words, one directly after the other."""

    words: tuple[str, ...]


class PatternCondition(msgspec.Struct, frozen=True, tag="pattern"):
    """Matches entries in whose title or text this RE2 expression is found, ignoring case."""

    expression: str


SearchCondition = PairsCondition | PhraseCondition | PatternCondition


class SavedSearch(msgspec.Struct, frozen=True):
    """A user's saved search.

    ``id`` is unique among all saved searches. ``number`` is unique among those of the user, who sees it.
    """

    id: SavedSearchId
    condition: SearchCondition = msgspec.field(name="standing")
    number: int = 0


class SearchableEntry:
    """An entry that has been prepared for matching against conditions."""

    def __init__(self, entry: Entry, pairs: Iterable[Pair]) -> None:
        """Prepare an entry; ``pairs`` are the AV-pairs of its content name."""
        self.pairs = frozenset(pairs)
        self.text = f"{entry.title}\n{entry.summary}"
        texts = [words(part, include_common=True) for part in (entry.title, entry.summary)]
        runs = [run for part in texts for run in (part, map(" ".join, pairwise(part)))]
        self.words = frozenset(chain.from_iterable(runs))
        """Its words, and each pair of consecutive words."""
        # A phrase does not extend from the title into the text.
        self.word_sequence = " \n ".join(["", *(" ".join(part) for part in texts), ""])


def validate_condition(condition: SearchCondition) -> SearchCondition:
    """Return the condition if it is specific enough and not too long. Raises :class:`BadQuery` otherwise."""
    if isinstance(condition, PhraseCondition):
        if not words(" ".join(condition.words)):
            raise BadQuery("These words are too common. Please use more specific ones.")
        if len(condition.words) > MAX_PHRASE_WORDS:
            raise BadQuery(
                "That's {count} words; a phrase can have at most {most}.",
                count=len(condition.words), most=MAX_PHRASE_WORDS,
            )  # fmt: skip
    elif isinstance(condition, PatternCondition):
        if len(condition.expression) > MAX_PATTERN_CHARS:
            raise BadQuery("That expression is longer than {most} characters.", most=MAX_PATTERN_CHARS)
        refuse_invisible(condition.expression)
        if compile_pattern(condition.expression).search("") is not None:
            raise BadQuery("That expression matches any text, even empty text. Please use a more specific one.")
    return condition


def matches(condition: SearchCondition, subject: SearchableEntry) -> bool:
    """Return whether an entry satisfies a condition."""
    match condition:
        case PairsCondition(pairs):
            return subject.pairs.issuperset(pairs)
        case PhraseCondition(found):
            return f" {' '.join(found)} " in subject.word_sequence
        case PatternCondition(expression):
            return compile_pattern(expression).search(subject.text) is not None


@lru_cache(_MAX_COMPILED)
def compile_pattern(expression: str) -> Any:
    """Return the compiled RE2 expression. Raises :class:`BadQuery` with RE2's reason if RE2 rejects it."""
    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as refusal:
        raise _pattern_error(printable(expression), _refusal_reason(refusal)) from refusal


def _pattern_error(expression: str, reason: str) -> BadQuery:
    """Return the error for an expression that RE2 rejected; ``reason`` is RE2's error text."""
    if reason.startswith("missing )"):
        return BadQuery(
            "`/{expression}/` isn't a valid regular expression: a closing parenthesis is missing.",
            expression=expression,
        )
    if reason.startswith("unexpected )"):
        return BadQuery(
            "`/{expression}/` isn't a valid regular expression: an opening parenthesis is missing.",
            expression=expression,
        )
    if reason.startswith("missing ]"):
        return BadQuery(
            "`/{expression}/` isn't a valid regular expression: a closing bracket is missing.", expression=expression
        )
    return BadQuery(
        "`/{expression}/` isn't a regular expression I can use: {reason}.", expression=expression, reason=reason
    )


def _refusal_reason(refusal: Exception) -> str:
    reason = refusal.args[0] if refusal.args else refusal
    return printable(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason), 120)


# Prior frequency of a given value of each attribute, per thousand entries.
_USUAL_SHARE: Final = {
    "channel": 0.1, "word": 1, "author": 1, "tag": 3, "host": 2, "domain": 3, "region": 80, "tld": 300, "lang": 400,
}  # fmt: skip
_PRIOR_WEIGHT = 200


class PairFrequencies:
    """Estimates of the frequencies of AV-pairs among recent entries.

    Until enough entries have been counted, each attribute's usual frequency is used.
    """

    MAX_KNOWN: Final = 100_000

    def __init__(self) -> None:
        self._seen: Counter[Pair] = Counter()
        self._entries = 0

    def count(self, pairs: Iterable[Pair]) -> None:
        """Count the AV-pairs of one entry."""
        self._seen.update(pairs)
        self._entries += 1
        if len(self._seen) > self.MAX_KNOWN:
            self._entries //= 2
            self._seen = Counter({each: count // 2 for each, count in self._seen.items() if count > 1})

    def share(self, pair: Pair) -> float:
        """Return the estimated share of entries that have this pair, between 0 and 1."""
        guess = _USUAL_SHARE[attribute_of(pair)] / 1000
        return (self._seen[pair] + guess * _PRIOR_WEIGHT) / (self._entries + _PRIOR_WEIGHT)


def rarest(pairs: Iterable[Pair], share: Callable[[Pair], float]) -> Pair:
    """Return the AV-pair with the smallest share of entries; ``share`` returns the share of a pair.

    Of several pairs with the same share, it is the first in alphabetical order.
    """
    return min(pairs, key=lambda pair: (share(pair), pair))


_SearchesByCondition = dict[Any, set[SavedSearchId]]
"""Ids of the searches with the same condition, by condition."""
_IndexKey = tuple[str, str]
"""The upper and lower key of an index entry; both the same if the condition has only one."""


class SavedSearchIndex:
    """An in-memory index of saved searches. Searches with the same condition are compared with an entry only once."""

    def __init__(self) -> None:
        self._conditions: dict[SavedSearchId, SearchCondition] = {}
        self._keys: dict[SavedSearchId, _IndexKey] = {}
        self._topics: dict[Pair, dict[Pair, _SearchesByCondition]] = {}
        self._phrases: dict[str, dict[str, _SearchesByCondition]] = {}
        self._patterns: dict[str, set[SavedSearchId]] = {}
        self._rarity = PairFrequencies()

    def __len__(self) -> int:
        return len(self._conditions)

    def put(self, search_id: SavedSearchId, condition: SearchCondition) -> None:
        """Add a saved search, or replace the one with the same id."""
        self.remove(search_id)
        self._conditions[search_id] = condition
        match condition:
            case PairsCondition(pairs):
                key = _rarest_two(pairs, self._rarity.share)
                _add_to_index(self._topics, key, frozenset(pairs), search_id)
                self._keys[search_id] = key
            case PhraseCondition(found):
                key = _longest_word_pair(found)
                _add_to_index(self._phrases, key, f" {' '.join(found)} ", search_id)
                self._keys[search_id] = key
            case PatternCondition(expression):
                self._patterns.setdefault(expression, set()).add(search_id)

    def remove(self, search_id: SavedSearchId) -> None:
        """Remove a saved search, if it is present."""
        condition = self._conditions.pop(search_id, None)
        match condition:
            case PairsCondition(pairs):
                _remove_from_index(self._topics, self._keys.pop(search_id), frozenset(pairs), search_id)
            case PhraseCondition(found):
                _remove_from_index(self._phrases, self._keys.pop(search_id), f" {' '.join(found)} ", search_id)
            case PatternCondition(expression):
                self._patterns[expression].discard(search_id)
                if not self._patterns[expression]:
                    del self._patterns[expression]

    def match(self, subject: SearchableEntry) -> set[SavedSearchId]:
        """Return the ids of the saved searches whose conditions an entry satisfies.

        The entry's AV-pairs are also counted, so that the index knows which pairs are rare.
        """
        self._rarity.count(subject.pairs)
        return set().union(*self._hits(subject))

    def _hits(self, subject: SearchableEntry) -> Iterator[set[SavedSearchId]]:
        pairs, word_sequence = subject.pairs, subject.word_sequence
        for group in _candidate_groups(self._topics, pairs):
            for condition_pairs, search_ids in group.items():
                if condition_pairs <= pairs:
                    yield search_ids
        for group in _candidate_groups(self._phrases, subject.words):
            for phrase, search_ids in group.items():
                if phrase in word_sequence:
                    yield search_ids
        for expression, search_ids in self._patterns.items():
            if compile_pattern(expression).search(subject.text) is not None:
                yield search_ids


def _rarest_two(pairs: Iterable[Pair], share: Callable[[Pair], float]) -> _IndexKey:
    first = rarest(pairs, share)
    return first, rarest([pair for pair in pairs if pair != first] or [first], share)


def _longest_word_pair(phrase: Sequence[str]) -> _IndexKey:
    """Return the index key of a phrase: its longest word, presumably its rarest, and a neighbouring word."""
    word = max(phrase, key=lambda word: (len(word), word))
    at = max(min(phrase.index(word), len(phrase) - 2), 0)
    key = " ".join(phrase[at : at + 2])
    return key, key


def _candidate_groups(
    index: dict[str, dict[str, _SearchesByCondition]], keys: frozenset[str]
) -> Iterator[_SearchesByCondition]:
    """Yield the groups of searches whose two index keys are both among ``keys``."""
    for key in index.keys() & keys if index else ():
        lower = index[key]
        for each in keys.intersection(lower) if len(lower) < len(keys) else lower.keys() & keys:
            yield lower[each]


def _add_to_index(
    index: dict[str, dict[str, _SearchesByCondition]], key: _IndexKey, what: Any, search_id: SavedSearchId
) -> None:
    first, second = key
    index.setdefault(first, {}).setdefault(second, {}).setdefault(what, set()).add(search_id)


def _remove_from_index(
    index: dict[str, dict[str, _SearchesByCondition]], key: _IndexKey, what: Any, search_id: SavedSearchId
) -> None:
    """Remove a search from the index, and then the groups that have become empty.

    ``key`` is the search's index key, and ``what`` is its condition.
    """
    first, second = key
    group = index[first][second]
    group[what].discard(search_id)
    if not group[what]:
        del group[what]
    if not group:
        del index[first][second]
    if not index[first]:
        del index[first]
