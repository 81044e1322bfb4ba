"""An in-memory index of saved searches (``watch``), which finds the searches that a new entry matches.

The index maps *keys*, which are strings, to searches. For each new entry, these keys are looked up:

- the entry's attribute-value pairs
- ``word=`` and ``title=`` with the stem of each word in the text and in the title
- ``text=`` and ``title-text=`` with each word as written and each pair of consecutive words, for phrases
- ``begins=`` and ``title-begins=`` with a prefix of a word, only for prefixes that some search contains

The conditions of a search have keys, too. For example, the keys of a word are its stems in all stemmed languages. An
entry satisfies a condition if the entry has one of the condition's keys. A phrase of more than two words must also
occur in the text.

The index has two levels:

1. A search is stored under the keys of its rarest condition.
2. Below each of these keys, it is stored under the keys of its next rarest condition.

If an entry has a key of both conditions, it is compared with the other conditions of the search. Since rare keys are
used, few of these comparisons fail.

Regular expressions have no keys. RE2 matches each of them against each entry, in time linear in the length of the text.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, Final

import msgspec
import re2

from service.discovery.av_pairs import Pair, attribute_of, printable, refuse_invisible
from service.discovery.queries.query import Condition, PairCondition, PhraseCondition, WordCondition
from service.discovery.word_analysis import fold, query_stems, stem, text_language, word_parts, words
from service.errors import BadQuery
from service.model import Entry

MAX_PATTERN_CHARS: Final = 200
MAX_PHRASE_WORDS: Final = 16
_PATTERN_BYTES = 1 << 16
"""Maximum memory of one compiled expression in bytes, including its automaton; RE2 rejects larger ones."""
_MAX_COMPILED = 2_000

SavedSearchId = str


class QueryCondition(msgspec.Struct, frozen=True, tag="query"):
    """The condition of a saved search, in the form of a query.

    - ``all_of``: groups of alternative conditions. An entry must satisfy at least one condition of each group.
    - ``none_of``: conditions that an entry must not satisfy.
    """

    all_of: tuple[tuple[Condition, ...], ...]
    none_of: tuple[Condition, ...] = ()


class PatternCondition(msgspec.Struct, frozen=True, tag="pattern"):
    """The condition of a saved search, in the form of a regular expression (RE2).

    An entry satisfies it if the expression matches a part of the entry's title or text; case is ignored.
    """

    expression: str


SearchCondition = QueryCondition | PatternCondition


class SavedSearch(msgspec.Struct, frozen=True):
    """A user's saved search.

    - ``id``: the id of the search, unique among all saved searches.
    - ``condition``: what entries must satisfy to match.
    - ``number``: the number by which the user refers to the search, unique among this user's searches.
    - ``text``: the search as the user wrote it.
    """

    id: SavedSearchId
    condition: SearchCondition
    number: int = 0
    text: str = ""


class SearchableEntry:
    """An entry prepared for matching with saved searches.

    It provides the entry's words, its attribute-value pairs, and the keys that are looked up in the index of searches.
    """

    def __init__(self, entry: Entry, pairs: Iterable[Pair] = (), language: str = "") -> None:
        """Prepare ``entry`` for matching.

        - ``pairs``: the attribute-value pairs of the entry. Pairs for words may be left out.
        - ``language``: the language tag that the publisher declares; "" if there is none.
        """
        self.text = f"{entry.title}\n{entry.summary}"
        self._pairs = [pair for pair in pairs if attribute_of(pair) != "word"]
        self._declared_language = language
        self._link = entry.link
        self.title_words = words(entry.title, include_common=True)
        self._other_fields = [words(text, include_common=True) for text in (entry.summary, *entry.tags, *entry.authors)]

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the entry's title, text, tags and authors, as written."""
        return frozenset(chain(self.title_words, *self._other_fields))

    @cached_property
    def sequences(self) -> tuple[str, str]:
        """Two strings in which phrases can be found: (the words of the title, the words of all fields).

        There is a space before and after each word. In the second string, a line break separates the fields, because a
        phrase does not extend from one field into the next.
        """
        # A phrase does not extend from one field into the next.
        title, *others = (f" {' '.join(field)} " for field in (self.title_words, *self._other_fields))
        return title, "\n".join((title, *others))

    @cached_property
    def contents(self) -> dict[str, str]:
        """The link of the entry, folded, and the words of its text, each with a space before and after it."""
        return {"link": fold(self._link), "text": f" {' '.join(self._other_fields[0])} "}

    @cached_property
    def pairs(self) -> frozenset[Pair]:
        """The entry's attribute-value pairs, including one for the stem of each word."""
        return frozenset((*self._pairs, *(f"word={each}" for stems, _ in self._field_keys for each in stems)))

    @cached_property
    def keys(self) -> frozenset[str]:
        """The entry's keys: the strings, such as ``word=rust``, to look up in the index of saved searches.

        Keys for prefixes of words are not included.
        """
        title_stems, title_texts = self._field_keys[0]
        return self.pairs.union(
            (f"text={text}" for _, texts in self._field_keys for text in texts),
            (f"title={stemmed}" for stemmed in title_stems),
            (f"title-text={text}" for text in title_texts),
        )

    @cached_property
    def _field_keys(self) -> list[tuple[set[str], set[str]]]:
        """One tuple per field, title first: (the stems of its words, its words and word pairs as written).

        A word pair is two consecutive words, joined by a space.
        """
        fields = [self.title_words, *self._other_fields]
        language = text_language(list(chain.from_iterable(fields)), self._declared_language)
        return [_keys_of_words(field, language) for field in fields]


def _keys_of_words(found: Sequence[str], language: str) -> tuple[set[str], set[str]]:
    """Return (the stems of ``found`` in ``language``, the words and word pairs as written).

    ``found`` contains the words of a text in their original order. A word pair is two consecutive words, joined by a
    space.
    """
    parts = (part for word in found if "." in word for part in word_parts(word))
    return {stem(word, language) for word in (*found, *parts)}, {*found, *map(" ".join, pairwise(found))}


def validate_pattern(condition: PatternCondition) -> PatternCondition:
    """Return ``condition`` unchanged if its expression can be used; raise :class:`BadQuery` otherwise."""
    if len(condition.expression) > MAX_PATTERN_CHARS:
        raise BadQuery("That expression is longer than {most} characters.", most=MAX_PATTERN_CHARS)
    refuse_invisible(condition.expression)
    if compile_pattern(condition.expression).search("") is not None:
        raise BadQuery("That expression matches any text, even empty text. Please use a more specific one.")
    return condition


def matches(condition: SearchCondition | Condition, subject: SearchableEntry) -> bool:
    """Return whether the entry ``subject`` satisfies ``condition``."""
    match condition:
        case PatternCondition(expression):
            return compile_pattern(expression).search(subject.text) is not None
        case QueryCondition(all_of, none_of):
            return all(any(matches(each, subject) for each in group) for group in all_of) and not any(
                matches(each, subject) for each in none_of
            )
        case PhraseCondition(found, in_title):
            return _is_in_sequence(found, subject, in_title=in_title)
        case PairCondition(pair) if (field := attribute_of(pair)) in subject.contents:
            return pair.removeprefix(f"{field}=") in subject.contents[field]
        case WordCondition(word, is_prefix=True, in_title=in_title):
            return any(each.startswith(word) for each in (subject.title_words if in_title else subject.words))
        case _:
            return not subject.keys.isdisjoint(_keys_of(condition))


def _is_in_sequence(phrase: Sequence[str], subject: SearchableEntry, *, in_title: bool) -> bool:
    return f" {' '.join(phrase)} " in subject.sequences[0 if in_title else 1]


def _keys_of(condition: Condition) -> tuple[str, ...]:
    """Return the keys of a condition: the strings, such as ``word=rust``, under which the index can store it.

    An entry that satisfies the condition has at least one of these keys. Conversely, an entry with one of them
    satisfies the condition. The only exception is a phrase of more than two words, which must also be compared
    with the text.
    """
    match condition:
        case PairCondition(pair):
            return (pair,)
        case PhraseCondition(found, in_title):
            return (f"{'title-text' if in_title else 'text'}={_rarest_part(found)}",)
        case WordCondition(word, is_prefix=True, in_title=in_title):
            return (f"{'title-begins' if in_title else 'begins'}={word}",)
        case WordCondition(word, in_title=in_title):
            return tuple(f"{'title' if in_title else 'word'}={stemmed}" for stemmed in query_stems(word))


def _rarest_part(phrase: Sequence[str]) -> str:
    """Return the two consecutive words of a phrase that are presumably the rarest, joined by a space.

    These are the longest word and a neighbour. The index stores the phrase under them. A phrase of one word is returned
    unchanged.
    """
    word = max(phrase, key=lambda word: (len(word), word))
    at = max(min(phrase.index(word), len(phrase) - 2), 0)
    return " ".join(phrase[at : at + 2])


@lru_cache(_MAX_COMPILED)
def compile_pattern(expression: str) -> Any:
    """Compile a regular expression with RE2. Raises :class:`BadQuery` with RE2's reason if RE2 rejects it."""
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


# Prior frequency of a given key of each kind, per thousand entries.
_USUAL_SHARE: Final = {
    "channel": 0.1, "author": 1, "tag": 3, "host": 2, "domain": 3, "region": 80, "tld": 300, "lang": 400,
    "word": 5, "title": 1, "text": 0.5, "title-text": 0.1, "begins": 20, "title-begins": 4,
}  # fmt: skip
_PRIOR_WEIGHT = 200


class KeyFrequencies:
    """Estimates of how frequent keys are among recent entries.

    A key is a string by which saved searches are found, such as ``word=rust``. Until enough entries have been counted,
    the usual frequency of each kind of key is used.
    """

    MAX_KNOWN: Final = 100_000

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._entries = 0

    def count(self, keys: Iterable[str]) -> None:
        """Count the keys of one entry."""
        self._seen.update(keys)
        self._entries += 1
        if len(self._seen) > self.MAX_KNOWN:
            self._entries //= 2
            self._seen = Counter({each: count // 2 for each, count in self._seen.items() if count > 1})

    def share(self, key: str) -> float:
        """Return the estimated fraction (0 to 1) of entries that have this key."""
        guess = _USUAL_SHARE[attribute_of(key)] / 1000
        return (self._seen[key] + guess * _PRIOR_WEIGHT) / (self._entries + _PRIOR_WEIGHT)


_MAX_PLACES: Final = 64
"""Maximum number of pairs (key of the rarest group, key of the next rarest) under which a condition is stored.

A condition with more such pairs is stored under the keys of the rarest group only.
"""


_MAX_UNSATISFIED: Final = 16
"""Number of unsuccessful comparisons of a condition with entries after which other keys are chosen for it."""


class _IndexedCondition:
    """A condition in the index of saved searches, with the ids of the searches that have this condition.

    A key is a string, such as ``word=rust``, that entries and conditions have in common if they match.

    - ``groups``: for each required group of alternative conditions, the keys of the group.
    - ``none_of``: the keys of all excluded conditions.
    - ``places``: where the two-level index stores the condition, as tuples of two keys. The first key belongs to the
      rarest group, the second to the next rarest group. Both keys are the same if the condition has only one group, or
      if there would be too many tuples.
    - ``others``: the groups that ``places`` does not cover. Each entry that is found at one of ``places`` is
      compared with them.
    - ``has_long_phrases``: whether the condition has phrases of more than two words, which are compared with the
      text.
    - ``is_decided``: whether every entry found at one of ``places`` satisfies the condition without any
      comparison.
    - ``unsatisfied``: how many entries were found at one of ``places`` but did not satisfy the condition.
    """

    __slots__ = (
        *("condition", "groups", "has_long_phrases", "is_decided", "none_of"),
        *("others", "places", "search_ids", "unsatisfied"),
    )

    def __init__(self, condition: QueryCondition, share: Callable[[str], float]) -> None:
        self.condition = condition
        self.search_ids: set[SavedSearchId] = set()
        self.groups = tuple(frozenset(key for each in group for key in _keys_of(each)) for group in condition.all_of)
        self.none_of = frozenset(key for each in condition.none_of for key in _keys_of(each))
        self.has_long_phrases = any(
            isinstance(each, PhraseCondition) and len(each.words) > len(("two", "words"))
            for group in (*condition.all_of, condition.none_of)
            for each in group
        )
        self.choose_places(share)

    def choose_places(self, share: Callable[[str], float]) -> None:
        """Choose ``places``, where the index stores the condition: under the keys of the condition's rarest groups.

        ``share`` returns the estimated fraction of entries that have a given key.
        """
        self.unsatisfied = 0
        first, *others = sorted(self.groups, key=lambda keys: (sum(map(share, keys)), sorted(keys)))
        second = others[0] if others and len(first) * len(others[0]) <= _MAX_PLACES else None
        self.places = tuple((upper, lower) for upper in first for lower in (second or (upper,)))
        self.others = tuple(others[1:] if second else others)
        self.is_decided = not (self.others or self.none_of or self.has_long_phrases)

    def keys(self) -> frozenset[str]:
        """Return the keys of all parts of the condition, including excluded parts."""
        return self.none_of.union(*self.groups)

    def is_satisfied(self, keys: frozenset[str], subject: SearchableEntry) -> bool:
        """Return whether an entry that was found at one of ``places`` in the index satisfies the whole condition.

        ``keys`` are the keys of the entry ``subject``, including the keys for prefixes of words.
        """
        for group in self.others:
            if keys.isdisjoint(group):
                return False
        if self.has_long_phrases:
            return matches(self.condition, subject)
        return keys.isdisjoint(self.none_of)


class _Beginnings:
    """The word prefixes that searches contain, indexed by their first characters."""

    _HEAD_CHARS: Final = 3

    def __init__(self) -> None:
        self._by_head: dict[str, Counter[str]] = {}
        """By first characters: the prefixes that begin with them, and how many conditions contain each prefix."""

    def add(self, keys: Iterable[str]) -> None:
        for beginning in _beginnings_in(keys):
            self._by_head.setdefault(beginning[: self._HEAD_CHARS], Counter())[beginning] += 1

    def remove(self, keys: Iterable[str]) -> None:
        for beginning in _beginnings_in(keys):
            head = beginning[: self._HEAD_CHARS]
            self._by_head[head][beginning] -= 1
            self._by_head[head] += Counter()
            if not self._by_head[head]:
                del self._by_head[head]

    def keys_of(self, subject: SearchableEntry) -> set[str]:
        """Return the keys of all prefixes in this index that are the beginning of a word of the entry ``subject``.

        A key is a string such as ``begins=pyth``, by which the index of saved searches finds searches.
        """
        if not self._by_head:
            return set()
        own = {f"begins={each}" for each in self._of(subject.words)}
        return own | {f"title-begins={each}" for each in self._of(subject.title_words)}

    def _of(self, found: Iterable[str]) -> Iterator[str]:
        for word in found:
            for length in range(1, self._HEAD_CHARS + 1):
                for beginning in self._by_head.get(word[:length], ()):
                    if word.startswith(beginning):
                        yield beginning


def _beginnings_in(keys: Iterable[str]) -> Iterator[str]:
    return (key.partition("=")[2] for key in keys if attribute_of(key) in ("begins", "title-begins"))


class SavedSearchIndex:
    """An in-memory index of saved searches.

    An entry is compared only once with a condition that several searches share.
    """

    def __init__(self) -> None:
        self._conditions: dict[SavedSearchId, SearchCondition] = {}
        self._indexed: dict[QueryCondition, _IndexedCondition] = {}
        self._places: dict[str, dict[str, list[_IndexedCondition]]] = {}
        self._patterns: dict[str, set[SavedSearchId]] = {}
        self._beginnings = _Beginnings()
        self._frequencies = KeyFrequencies()

    def __len__(self) -> int:
        return len(self._conditions)

    def put(self, search_id: SavedSearchId, condition: SearchCondition) -> None:
        """Add a saved search, or replace its condition if a search with this id is already present."""
        self.remove(search_id)
        self._conditions[search_id] = condition
        if isinstance(condition, PatternCondition):
            self._patterns.setdefault(condition.expression, set()).add(search_id)
            return
        indexed = self._indexed.get(condition)
        if indexed is None:
            indexed = self._indexed[condition] = _IndexedCondition(condition, self._frequencies.share)
            self._add_places(indexed)
            self._beginnings.add(indexed.keys())
        indexed.search_ids.add(search_id)

    def remove(self, search_id: SavedSearchId) -> None:
        """Remove a saved search, if it is present."""
        condition = self._conditions.pop(search_id, None)
        match condition:
            case PatternCondition(expression):
                self._patterns[expression].discard(search_id)
                if not self._patterns[expression]:
                    del self._patterns[expression]
            case QueryCondition():
                indexed = self._indexed[condition]
                indexed.search_ids.discard(search_id)
                if not indexed.search_ids:
                    del self._indexed[condition]
                    self._remove_places(indexed)
                    self._beginnings.remove(indexed.keys())

    def match(self, subject: SearchableEntry) -> set[SavedSearchId]:
        """Return the ids of the saved searches whose conditions the entry ``subject`` satisfies.

        Also count the entry's attribute-value pairs, to estimate how frequent keys are. If too many entries were found
        under a condition's keys but did not satisfy the condition, store the condition under rarer keys.
        """
        self._frequencies.count(subject.pairs)
        misplaced: list[_IndexedCondition] = []
        found: set[SavedSearchId] = set().union(*self._hits(subject, misplaced))
        for indexed in misplaced:
            self._remove_places(indexed)
            indexed.choose_places(self._frequencies.share)
            self._add_places(indexed)
        return found

    def _hits(self, subject: SearchableEntry, misplaced: list[_IndexedCondition]) -> Iterator[set[SavedSearchId]]:
        """Yield, for each condition that the entry ``subject`` satisfies, the ids of the searches with this condition.

        A condition is appended to ``misplaced`` if too many entries were found under its keys but did not satisfy it.
        """
        # Estimates are poor when searches are loaded, before any entries have been counted.
        keys = subject.keys
        keys |= self._beginnings.keys_of(subject)
        for upper in self._places.keys() & keys:
            group = self._places[upper]
            for lower in keys.intersection(group) if len(group) < len(keys) else group.keys() & keys:
                for indexed in group[lower]:
                    if indexed.is_decided or indexed.is_satisfied(keys, subject):
                        yield indexed.search_ids
                    else:
                        indexed.unsatisfied += 1
                        if indexed.unsatisfied == _MAX_UNSATISFIED:
                            misplaced.append(indexed)
        for expression, search_ids in self._patterns.items():
            if compile_pattern(expression).search(subject.text) is not None:
                yield search_ids

    def _add_places(self, indexed: _IndexedCondition) -> None:
        for upper, lower in indexed.places:
            self._places.setdefault(upper, {}).setdefault(lower, []).append(indexed)

    def _remove_places(self, indexed: _IndexedCondition) -> None:
        """Remove a condition from all its ``places`` in the index, and delete places that become empty."""
        for upper, lower in indexed.places:
            group = self._places[upper]
            group[lower].remove(indexed)
            if not group[lower]:
                del group[lower]
            if not group:
                del self._places[upper]
