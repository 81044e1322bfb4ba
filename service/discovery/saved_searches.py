"""Standing queries (``watch``): the matrices' roles reversed. A query waits under its rarest pair, and entries probe.

An entry probes with each of its pairs, and matches by subset the other way. Under a pair, queries wait by the next
rarest one: the rarest may still be common, and what is tried for nothing is what matching costs. A phrase waits under
two words that follow one another.
Regular expressions have nothing to wait under: each is tried, by RE2, in time linear in the text.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, Final

import msgspec
import re2

from service.discovery.av_pairs import Pair, attribute_of, printable, refuse_invisible, words
from service.errors import BadQuery
from service.model import Entry

MAX_PATTERN_CHARS: Final = 200
MAX_PHRASE_WORDS: Final = 16
_PATTERN_BYTES = 1 << 16
"""Of memory that one expression may take, its automaton included. RE2 refuses what needs more."""
_MAX_COMPILED = 2_000

SavedSearchId = str


class PairsCondition(msgspec.Struct, frozen=True, tag="topic"):
    """All entries that have these pairs."""

    pairs: tuple[Pair, ...]


class PhraseCondition(msgspec.Struct, frozen=True, tag="phrase"):
    """All entries in whose title or text these words follow one another."""

    words: tuple[str, ...]


class PatternCondition(msgspec.Struct, frozen=True, tag="pattern"):
    """All entries of which a line of title or text matches this expression (RE2), whatever its case."""

    expression: str


SearchCondition = PairsCondition | PhraseCondition | PatternCondition


class SavedSearch(msgspec.Struct, frozen=True):
    """One user's standing query, its id among all, and its number among theirs."""

    id: SavedSearchId
    standing: SearchCondition
    number: int = 0


class SearchableEntry:
    """An entry as standing queries see it."""

    def __init__(self, entry: Entry, pairs: Iterable[Pair]) -> None:
        """``pairs`` is the entry's name."""
        self.pairs = frozenset(pairs)
        self.text = f"{entry.title}\n{entry.summary}"
        told = [words(part, common=True) for part in (entry.title, entry.summary)]
        runs = [run for part in told for run in (part, map(" ".join, pairwise(part)))]
        self.words = frozenset(chain.from_iterable(runs))
        """Its words, and each two that follow one another."""
        # A phrase goes not from the title into the text.
        self.running = " \n ".join(["", *(" ".join(part) for part in told), ""])


def validate_condition(standing: SearchCondition) -> SearchCondition:
    """Return a standing query that tells something apart, and that we can afford. Raises :class:`BadQuery`."""
    if isinstance(standing, PhraseCondition):
        if not words(" ".join(standing.words)):
            raise BadQuery("These words stand in nearly every text. Watch for words that tell something apart.")
        if len(standing.words) > MAX_PHRASE_WORDS:
            raise BadQuery(
                "Those are {count} words; {most} in a row are the most.",
                count=len(standing.words), most=MAX_PHRASE_WORDS,
            )  # fmt: skip
    elif isinstance(standing, PatternCondition):
        if len(standing.expression) > MAX_PATTERN_CHARS:
            raise BadQuery("That expression is longer than {most} characters.", most=MAX_PATTERN_CHARS)
        refuse_invisible(standing.expression)
        if compile_pattern(standing.expression).search("") is not None:
            raise BadQuery("That expression matches every text, even none. Watch for one that tells something apart.")
    return standing


def matches(standing: SearchCondition, subject: SearchableEntry) -> bool:
    """Say whether an entry is one of those that a standing query is for."""
    match standing:
        case PairsCondition(pairs):
            return subject.pairs.issuperset(pairs)
        case PhraseCondition(found):
            return f" {' '.join(found)} " in subject.running
        case PatternCondition(expression):
            return compile_pattern(expression).search(subject.text) is not None


@lru_cache(_MAX_COMPILED)
def compile_pattern(expression: str) -> Any:
    """Return an expression as RE2 runs it. Raises :class:`BadQuery` if RE2 refuses it, with its reason."""
    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as refusal:
        raise BadQuery(
            "/{expression}/ is no expression that I can watch for: {reason}.",
            expression=printable(expression), reason=_refusal_reason(refusal),
        ) from refusal  # fmt: skip


def _refusal_reason(refusal: Exception) -> str:
    reason = refusal.args[0] if refusal.args else refusal
    return printable(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason), 120)


# How many of a thousand entries have some given value of each, as a first guess.
_USUAL_SHARE: Final = {
    "channel": 0.1, "word": 1, "author": 1, "tag": 3, "host": 2, "domain": 3, "region": 80, "tld": 300, "lang": 400,
}  # fmt: skip
_GUESS_WEIGHS = 200


class PairFrequencies:
    """How common each pair is among the entries seen, fading; before there are many, what is usual."""

    MOST_KNOWN: Final = 100_000

    def __init__(self) -> None:
        self._seen: Counter[Pair] = Counter()
        self._entries = 0

    def count(self, pairs: Iterable[Pair]) -> None:
        """Take notice of an entry's pairs."""
        self._seen.update(pairs)
        self._entries += 1
        if len(self._seen) > self.MOST_KNOWN:
            self._entries //= 2
            self._seen = Counter({each: count // 2 for each, count in self._seen.items() if count > 1})

    def share(self, pair: Pair) -> float:
        """Return about what share of entries have a pair."""
        guess = _USUAL_SHARE[attribute_of(pair)] / 1000
        return (self._seen[pair] + guess * _GUESS_WEIGHS) / (self._entries + _GUESS_WEIGHS)


def rarest(pairs: Iterable[Pair], share: Callable[[Pair], float]) -> Pair:
    """Return the pair that the smallest share of entries has; of equals the first in order."""
    return min(pairs, key=lambda pair: (share(pair), pair))


_SearchesByCondition = dict[Any, set[SavedSearchId]]
"""Those who ask for the same, by what they ask for."""
_IndexKey = tuple[str, str]
"""The key of a group's place, and the key below that one; the same twice where there is but one."""


class SavedSearchIndex:
    """Standing queries in memory, and whose of them an entry matches. Those that ask for the same share their work."""

    def __init__(self) -> None:
        self._held: dict[SavedSearchId, SearchCondition] = {}
        self._places: dict[SavedSearchId, _IndexKey] = {}
        self._topics: dict[Pair, dict[Pair, _SearchesByCondition]] = {}
        self._phrases: dict[str, dict[str, _SearchesByCondition]] = {}
        self._patterns: dict[str, set[SavedSearchId]] = {}
        self._rarity = PairFrequencies()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, watch: SavedSearchId, standing: SearchCondition) -> None:
        """Have a standing query wait; it takes the place of what waits under the same id."""
        self.drop(watch)
        self._held[watch] = standing
        match standing:
            case PairsCondition(pairs):
                place = _rarest_two(pairs, self._rarity.share)
                _add_to_index(self._topics, place, frozenset(pairs), watch)
                self._places[watch] = place
            case PhraseCondition(found):
                place = _longest_word_pair(found)
                _add_to_index(self._phrases, place, f" {' '.join(found)} ", watch)
                self._places[watch] = place
            case PatternCondition(expression):
                self._patterns.setdefault(expression, set()).add(watch)

    def drop(self, watch: SavedSearchId) -> None:
        """Forget a standing query, if it waits here."""
        standing = self._held.pop(watch, None)
        match standing:
            case PairsCondition(pairs):
                _remove_from_index(self._topics, self._places.pop(watch), frozenset(pairs), watch)
            case PhraseCondition(found):
                _remove_from_index(self._phrases, self._places.pop(watch), f" {' '.join(found)} ", watch)
            case PatternCondition(expression):
                self._patterns[expression].discard(watch)
                if not self._patterns[expression]:
                    del self._patterns[expression]

    def match(self, subject: SearchableEntry) -> set[SavedSearchId]:
        """Return the standing queries that an entry matches: those for which :func:`matches` is true."""
        self._rarity.count(subject.pairs)
        return set().union(*self._hits(subject))

    def _hits(self, subject: SearchableEntry) -> Iterator[set[SavedSearchId]]:
        pairs, running = subject.pairs, subject.running
        for group in _candidate_groups(self._topics, pairs):
            for wanted, watches in group.items():
                if wanted <= pairs:
                    yield watches
        for group in _candidate_groups(self._phrases, subject.words):
            for phrase, watches in group.items():
                if phrase in running:
                    yield watches
        for expression, watches in self._patterns.items():
            if compile_pattern(expression).search(subject.text) is not None:
                yield watches


def _rarest_two(pairs: Iterable[Pair], share: Callable[[Pair], float]) -> _IndexKey:
    first = rarest(pairs, share)
    return first, rarest([pair for pair in pairs if pair != first] or [first], share)


def _longest_word_pair(phrase: Sequence[str]) -> _IndexKey:
    """Return a phrase's longest word, which is taken for its rarest, with the one after it or before it."""
    word = max(phrase, key=lambda word: (len(word), word))
    at = max(min(phrase.index(word), len(phrase) - 2), 0)
    place = " ".join(phrase[at : at + 2])
    return place, place


def _candidate_groups(
    waiting: dict[str, dict[str, _SearchesByCondition]], keys: frozenset[str]
) -> Iterator[_SearchesByCondition]:
    """Return what waits under two of these keys, or one of them twice."""
    for key in waiting.keys() & keys if waiting else ():
        lower = waiting[key]
        for each in keys.intersection(lower) if len(lower) < len(keys) else lower.keys() & keys:
            yield lower[each]


def _add_to_index(
    waiting: dict[str, dict[str, _SearchesByCondition]], place: _IndexKey, what: Any, watch: SavedSearchId
) -> None:
    first, second = place
    waiting.setdefault(first, {}).setdefault(second, {}).setdefault(what, set()).add(watch)


def _remove_from_index(
    waiting: dict[str, dict[str, _SearchesByCondition]], place: _IndexKey, what: Any, watch: SavedSearchId
) -> None:
    """Take one out of where it waits, and leave nothing empty behind."""
    first, second = place
    group = waiting[first][second]
    group[what].discard(watch)
    if not group[what]:
        del group[what]
    if not group:
        del waiting[first][second]
    if not waiting[first]:
        del waiting[first]
