"""Standing queries (``watch``): the matrices' roles reversed. A query waits under its rarest pair, and entries probe.

An entry probes with each of its pairs, and matches by subset the other way. A phrase waits under its rarest word.
Regular expressions have nothing to wait under: each is tried, by RE2, in time linear in the text.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
import re2

from service.discovery.pairs import Pair, attribute_of, refuse_invisible, shown, words
from service.errors import BadQuery
from service.model import Entry

MOST_PATTERN_CHARS: Final = 200
MOST_PHRASE_WORDS: Final = 16
_PATTERN_BYTES = 1 << 16
"""Of memory that one expression may take, its automaton included. RE2 refuses what needs more."""
_MOST_COMPILED = 2_000

WatchId = str


class Topic(msgspec.Struct, frozen=True, tag="topic"):
    """All entries that have these pairs."""

    pairs: tuple[Pair, ...]


class Phrase(msgspec.Struct, frozen=True, tag="phrase"):
    """All entries in whose title or text these words follow one another."""

    words: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True, tag="pattern"):
    """All entries of which a line of title or text matches this expression (RE2), whatever its case."""

    expression: str


Standing = Topic | Phrase | Pattern


class Watch(msgspec.Struct, frozen=True):
    """One user's standing query, its id among all, and its number among theirs."""

    id: WatchId
    standing: Standing
    number: int = 0


class Subject:
    """An entry as standing queries see it."""

    def __init__(self, entry: Entry, pairs: Iterable[Pair]) -> None:
        """``pairs`` is the entry's name."""
        self.pairs = frozenset(pairs)
        self.text = f"{entry.title}\n{entry.summary}"
        told = [words(part, common=True) for part in (entry.title, entry.summary)]
        self.words = frozenset(word for part in told for word in part)
        # A phrase goes not from the title into the text.
        self.running = " \n ".join(["", *(" ".join(part) for part in told), ""])


def checked(standing: Standing) -> Standing:
    """Return a standing query that tells something apart, and that we can afford. Raises :class:`BadQuery`."""
    if isinstance(standing, Phrase):
        if not words(" ".join(standing.words)):
            raise BadQuery("These words stand in nearly every text. Watch for words that tell something apart.")
        if len(standing.words) > MOST_PHRASE_WORDS:
            raise BadQuery(f"Those are {len(standing.words):,} words; {MOST_PHRASE_WORDS} in a row are the most.")
    elif isinstance(standing, Pattern):
        if len(standing.expression) > MOST_PATTERN_CHARS:
            raise BadQuery(f"That expression is longer than {MOST_PATTERN_CHARS} characters.")
        refuse_invisible(standing.expression)
        if compiled(standing.expression).search("") is not None:
            raise BadQuery("That expression matches every text, even none. Watch for one that tells something apart.")
    return standing


def matches(standing: Standing, subject: Subject) -> bool:
    """Say whether an entry is one of those that a standing query is for."""
    match standing:
        case Topic(pairs):
            return subject.pairs.issuperset(pairs)
        case Phrase(found):
            return f" {' '.join(found)} " in subject.running
        case Pattern(expression):
            return compiled(expression).search(subject.text) is not None


@lru_cache(_MOST_COMPILED)
def compiled(expression: str) -> Any:
    """Return an expression as RE2 runs it. Raises :class:`BadQuery` if RE2 refuses it, with its reason."""
    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as refusal:
        raise BadQuery(f"/{shown(expression)}/ is no expression that I can watch for: {_said(refusal)}.") from refusal


def _said(refusal: Exception) -> str:
    reason = refusal.args[0] if refusal.args else refusal
    return shown(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason), 120)


# How many of a thousand entries have some given value of each, as a first guess.
_USUAL_SHARE: Final = {
    "channel": 0.1, "word": 1, "author": 1, "tag": 3, "host": 2, "domain": 3, "region": 80, "tld": 300, "lang": 400,
}  # fmt: skip
_GUESS_WEIGHS = 200


class Rarity:
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


_Waiting = dict[Pair, dict[frozenset[Pair], set[WatchId]]]
_NOTHING: Final[dict[Any, set[WatchId]]] = {}


class Matcher:
    """Standing queries in memory, and whose of them an entry matches. Those that ask for the same share their work."""

    def __init__(self) -> None:
        self._held: dict[WatchId, Standing] = {}
        self._places: dict[WatchId, Pair] = {}
        self._topics: _Waiting = {}
        self._phrases: dict[str, dict[str, set[WatchId]]] = {}
        self._patterns: dict[str, set[WatchId]] = {}
        self._rarity = Rarity()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, watch: WatchId, standing: Standing) -> None:
        """Have a standing query wait; it takes the place of what waits under the same id."""
        self.drop(watch)
        self._held[watch] = standing
        match standing:
            case Topic(pairs):
                place = rarest(pairs, self._rarity.share)
                self._topics.setdefault(place, {}).setdefault(frozenset(pairs), set()).add(watch)
                self._places[watch] = place
            case Phrase(found):
                place = max(found, key=lambda word: (len(word), word))
                self._phrases.setdefault(place, {}).setdefault(f" {' '.join(found)} ", set()).add(watch)
                self._places[watch] = place
            case Pattern(expression):
                self._patterns.setdefault(expression, set()).add(watch)

    def drop(self, watch: WatchId) -> None:
        """Forget a standing query, if it waits here."""
        standing = self._held.pop(watch, None)
        match standing:
            case Topic(pairs):
                _take_out(self._topics, self._places.pop(watch), frozenset(pairs), watch)
            case Phrase(found):
                _take_out(self._phrases, self._places.pop(watch), f" {' '.join(found)} ", watch)
            case Pattern(expression):
                self._patterns[expression].discard(watch)
                if not self._patterns[expression]:
                    del self._patterns[expression]

    def match(self, subject: Subject) -> set[WatchId]:
        """Return the standing queries that an entry matches: those for which :func:`matches` is true."""
        self._rarity.count(subject.pairs)
        found: set[WatchId] = set()
        for hit in self._hits(subject):
            found |= hit
        return found

    def _hits(self, subject: Subject) -> Iterator[set[WatchId]]:
        for own in subject.pairs:
            for pairs, watches in self._topics.get(own, _NOTHING).items():
                if pairs <= subject.pairs:
                    yield watches
        for word in subject.words if self._phrases else ():
            for phrase, watches in self._phrases.get(word, _NOTHING).items():
                if phrase in subject.running:
                    yield watches
        for expression, watches in self._patterns.items():
            if compiled(expression).search(subject.text) is not None:
                yield watches


def _take_out(waiting: dict[str, dict[Any, set[WatchId]]], place: str, what: Any, watch: WatchId) -> None:
    """Take one out of where it waits, and leave nothing empty behind."""
    waiting[place][what].discard(watch)
    if not waiting[place][what]:
        del waiting[place][what]
    if not waiting[place]:
        del waiting[place]
