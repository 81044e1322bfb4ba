"""Query expansion: finds the registered words of documents that correspond to the words of a query.

A document (channel or entry) is registered with the stems of its words in its own language, as attribute-value pairs. A
word of a query is expanded to several stems:

- Each word gets its stems in all stemmed languages, because the language of a query is unknown.
- A prefix gets the stems of registered words that begin with it.
- A word that no document contains may be misspelt. It gets the stems of similar words, with less weight.

If no result of a search has all words, the search is repeated with the stems of similar words for all words.

If a query has several words, the words are *optional*: a result needs only one of them, and results with more of them
come first.

Each group of alternatives of the query becomes a *clause*: a set of attribute-value pairs, at least one of which a
document must have. A phrase becomes one clause for each of its words. The clauses ignore the order of the phrase's
words, so :meth:`ExpandedQuery.match` compares the phrase with the text.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cached_property, lru_cache
from itertools import islice
from typing import Final

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.queries.query import Condition, Correction, PairCondition, PhraseCondition, Query, WordCondition
from service.discovery.search_candidates import Clause, WeightedPair
from service.discovery.text_search.searchable_text import SearchableText
from service.discovery.text_search.vocabulary import SimilarWord, Vocabulary
from service.discovery.word_analysis import (
    LANGUAGES,
    MAX_TEXT_CHARS,
    fold,
    is_distinctive,
    query_stems,
    separate_words,
    stem,
    stem_beginning,
    without_umlauts,
    words,
)

MAX_SIMILAR_STEMS: Final = 8
"""Maximum number of stems of similar words to which a misspelt word is expanded."""
MAX_PREFIX_STEMS: Final = 16
"""Maximum number of stems to which a prefix is expanded."""

_CACHED_WORDS: Final = 10_000
_FOREIGN_FACTOR = 0.8
"""Factor of a stem in a language other than the user's: how well the stem fits the query.

It is less than 1, because most users search in their own language.
"""
_PREFIX_FACTOR = 0.8
_DISTANCE_FACTOR = 0.5
"""Factor of a similar word with one wrong letter: how well the word fits the query.

With two wrong letters, the factor is 0.5².
"""


class QueryWords(msgspec.Struct, frozen=True, dict=True):
    """The words of a query, for finding them in a text.

    - ``stems``: the stems of the words, and of similar words, in all stemmed languages.
    - ``prefixes``: the prefixes that the query contains.
    """

    stems: frozenset[str]
    prefixes: tuple[str, ...]

    def has(self, word: str) -> bool:
        """Return whether ``word``, a word of a text, is one of the query's words.

        ``word`` must be folded (without case and accents). Inflected forms of the query's words count, and so do
        words that begin with one of the prefixes.
        """
        return (
            word.startswith(self._first_letters)
            and without_umlauts(word).startswith(self._beginnings)
            and (not self.stems.isdisjoint(query_stems(word)) or word.startswith(self.prefixes))
        )

    def find_beginnings(self, texts: Sequence[str]) -> list[int]:
        """Return the indices of texts that contain the beginning of a word of the query; a fast test.

        The other texts contain no word of the query.
        """
        texts = [text[:MAX_TEXT_CHARS] for text in texts]
        together, beginnings = "\n".join(texts), self._separate_beginnings
        if together.isascii() and together.count("\n") == len(texts) - 1:
            together = separate_words(without_umlauts(together.lower()))
        else:  # a word may begin within a run of letters, as in scripts without spaces
            together, beginnings = without_umlauts("\n".join(map(fold, texts))), self._beginnings
        if not any(map(together.__contains__, beginnings)):
            return []
        prepared = enumerate(together.split("\n"))
        return [place for place, text in prepared if any(map(text.__contains__, beginnings))]

    def count_in(self, text: str) -> int:
        """Return how many words of a text are words of the query."""
        first_letters = self._first_letters
        similar = [word for word in words(text, include_common=True) if word.startswith(first_letters)]
        return sum(map(is_distinctive, filter(self.has, similar)))

    @cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """The beginnings of the words, without umlauts (:func:`without_umlauts`)."""
        return (*dict.fromkeys(map(stem_beginning, self.stems)), *map(without_umlauts, self.prefixes))

    @cached_property
    def _separate_beginnings(self) -> tuple[str, ...]:
        """The beginnings of the words as they occur in a text that :func:`separate_words` returns."""
        return tuple({separate_words(beginning) for beginning in self._beginnings if beginning.isascii()})

    @cached_property
    def _first_letters(self) -> tuple[str, ...]:
        return tuple({beginning[:1] for beginning in self._beginnings})


class MatchKind(Enum):
    """How a document matches a query: not at all, with some of the optional words, or with all words."""

    NONE = "none"
    SOME_WORDS = "some words"
    ALL_WORDS = "all words"


class ExpandedQuery(msgspec.Struct, frozen=True, dict=True):
    """A query, together with the attribute-value pairs for finding its results.

    - ``clauses``: the query's conditions, each converted to a set of alternative attribute-value pairs.
    - ``excluded``: attribute-value pairs that results must not have.
    - ``similar``: for each word of the query that may be misspelt, the similar registered words.
    - ``optional``: the groups of the query's conditions that are optional. A result must satisfy at least one of
      them. Empty if all groups are required.
    """

    query: Query
    clauses: tuple[Clause, ...]
    excluded: frozenset[Pair]
    similar: dict[str, tuple[SimilarWord, ...]]
    optional: tuple[tuple[Condition, ...], ...] = ()

    def match(self, text: SearchableText, pairs: AbstractSet[Pair]) -> MatchKind:
        """Return how a document with this text and these attribute-value pairs matches the query.

        A registered word that is similar to a word of the query counts as that word. If words are optional, a document
        matches if it has at least one of them.
        """
        for condition in self.query.none_of:
            if _holds_as_written(condition, text, pairs):
                return MatchKind.NONE
        for group in self._required:
            if not self._has_one(group, text, pairs):
                return MatchKind.NONE
        held = [self._has_one(group, text, pairs) for group in self.optional]
        if False not in held:
            return MatchKind.ALL_WORDS
        return MatchKind.SOME_WORDS if True in held else MatchKind.NONE

    def share_as_written(self, folded: str) -> float:
        """Return the fraction (0 to 1) of the query's words that occur in a folded text as written.

        The result is 0 if the query has no words.
        """
        own = self._words
        return sum(map(folded.__contains__, own)) / len(own) if own else 0.0

    def corrections(self, documents: Sequence[tuple[SearchableText, AbstractSet[Pair]]]) -> Iterator[Correction]:
        """Yield a correction for each word of the query that none of the documents contains as written.

        ``documents`` contains a tuple (text, attribute-value pairs) for each matching document, best first. The
        replacement is a similar word from one of the documents. If there is none, no correction is yielded for the
        word.
        """
        for word, candidates in self.similar.items():
            if not any(_holds_as_written(WordCondition(word), *document) for document in documents):
                found = (each.word for one in documents for each in candidates if _has_stem(each.stem, *one))
                yield from (Correction(word, replacement) for replacement in islice(found, 1))

    def query_words(self) -> QueryWords:
        """Return the words of the query and the words similar to them, for marking them in the texts of results."""
        stems = {stemmed for word in self._words for stemmed in query_stems(word)}
        stems.update(each.stem for candidates in self.similar.values() for each in candidates)
        prefixes = (each.word for each in self._conditions() if isinstance(each, WordCondition) and each.is_prefix)
        return QueryWords(frozenset(stems), tuple(prefixes))

    def words_without_documents(self, frequencies: Mapping[Pair, int]) -> tuple[str, ...]:
        """Return the words of the query that no document contains, which may therefore be misspelt.

        ``frequencies`` maps each pair of the clauses to the approximate number of documents that have it.
        """
        return tuple(
            word
            for word in correctable_words(self.query)
            if not any(frequencies.get(pair) for pair in _pairs_of_word(word))
        )

    @cached_property
    def _words(self) -> tuple[str, ...]:
        return tuple(word for condition in self._conditions() for word in _words_of(condition))

    @cached_property
    def _required(self) -> tuple[tuple[Condition, ...], ...]:
        """The groups of the query's conditions that are not optional."""
        return tuple(group for group in self.query.all_of if group not in self.optional)

    def _conditions(self) -> Iterator[Condition]:
        return (condition for group in self.query.all_of for condition in group)

    def _has_one(self, group: tuple[Condition, ...], text: SearchableText, pairs: AbstractSet[Pair]) -> bool:
        for condition in group:
            if _holds_as_written(condition, text, pairs) or self._has_similar(condition, text, pairs):
                return True
        return False

    def _has_similar(self, condition: Condition, text: SearchableText, pairs: AbstractSet[Pair]) -> bool:
        if not self.similar or not isinstance(condition, WordCondition):
            return False
        stems = [each.stem for each in self.similar.get(condition.word, ())]
        if condition.in_title:
            return not text.title_stems.isdisjoint(stems)
        return any(_has_stem(stemmed, text, pairs) for stemmed in stems)


def expand(query: Query, vocabulary: Vocabulary, language: str = "", misspelt: Collection[str] = ()) -> ExpandedQuery:
    """Find the attribute-value pairs by which a query's results can be found; return them together with the query.

    - ``vocabulary``: the registered words.
    - ``language``: the user's language (ISO 639-1); "" if unknown. Stems in other languages get lower factors.
    - ``misspelt``: the words of the query that may be misspelt, for which similar words are added.

    If the query has several words, a result needs only one of them. Phrases and fields are always required.
    """
    similar = {word: tuple(vocabulary.similar(word, MAX_SIMILAR_STEMS)) for word in misspelt}
    words = tuple(group for group in dict.fromkeys(query.all_of) if all(map(_is_word, group)))
    optional = words if len(words) > 1 else ()
    clauses = (
        msgspec.structs.replace(clause, is_optional=group in optional)
        for group in query.all_of
        for clause in _clauses(group, vocabulary, similar, language)
    )
    excluded = frozenset(pair for condition in query.none_of for pair in _excluded_pairs(condition))
    found = {word: candidates for word, candidates in similar.items() if candidates}
    return ExpandedQuery(query, tuple(dict.fromkeys(clauses)), excluded, found, optional)


def correctable_words(query: Query) -> tuple[str, ...]:
    """Return the words of a query that may be misspelt: its single words, but not those of phrases, and no prefixes."""
    conditions = (condition for group in query.all_of for condition in group)
    words = (each.word for each in conditions if isinstance(each, WordCondition) and not each.is_prefix)
    return tuple(dict.fromkeys(words))


def _is_word(condition: Condition) -> bool:
    return isinstance(condition, WordCondition) and not condition.in_title


def _clauses(
    group: tuple[Condition, ...], vocabulary: Vocabulary, similar: dict[str, tuple[SimilarWord, ...]], language: str
) -> Iterator[Clause]:
    """Yield the clauses for a group of alternative conditions of the query.

    A clause is a set of alternative attribute-value pairs; a result satisfies it if it has at least one of them.
    If the group is a single phrase, one clause is yielded for each distinctive word of the phrase. For any other
    group, one clause is yielded.

    - ``vocabulary``: the registered words, in which words are looked up by prefix.
    - ``similar``: for each word that may be misspelt, the similar registered words.
    - ``language``: the user's language.
    """
    if len(group) == 1 and isinstance(group[0], PhraseCondition):
        for word in group[0].words:
            if is_distinctive(word):
                yield Clause(tuple(_word_pairs(WordCondition(word), vocabulary, {}, language)))
        return
    factors: dict[Pair, float] = {}
    for condition in group:
        for each in _alternatives(condition, vocabulary, similar, language):
            factors[each.pair] = max(each.factor, factors.get(each.pair, 0.0))
    yield Clause(tuple(WeightedPair(pair, factor) for pair, factor in factors.items()))


def _alternatives(
    condition: Condition, vocabulary: Vocabulary, similar: dict[str, tuple[SimilarWord, ...]], language: str
) -> Iterator[WeightedPair]:
    match condition:
        case PairCondition(pair):
            yield WeightedPair(pair)
        case PhraseCondition(words):
            # Among alternatives, a phrase is searched by one word: the longest, which is the rarest as a rule.
            longest = max(filter(is_distinctive, words), key=len, default="")
            if longest:
                yield from _word_pairs(WordCondition(longest), vocabulary, {}, language)
        case WordCondition():
            yield from _word_pairs(condition, vocabulary, similar, language)


def _word_pairs(
    condition: WordCondition, vocabulary: Vocabulary, similar: dict[str, tuple[SimilarWord, ...]], language: str
) -> Iterator[WeightedPair]:
    own = (condition.word, stem(condition.word, language))
    for stemmed in query_stems(condition.word):
        yield WeightedPair(word_pair(stemmed), 1.0 if stemmed in own or language not in LANGUAGES else _FOREIGN_FACTOR)
    if condition.is_prefix:
        for each in vocabulary.with_prefix(condition.word, MAX_PREFIX_STEMS):
            yield WeightedPair(word_pair(each.stem), _PREFIX_FACTOR)
    for each in similar.get(condition.word, ()):
        yield WeightedPair(word_pair(each.stem), _DISTANCE_FACTOR**each.distance)


def _excluded_pairs(condition: Condition) -> Iterator[Pair]:
    """Yield the attribute-value pairs that results must not have, because the query excludes ``condition``.

    Phrases, prefixes and words in the title yield no pairs, because they are compared with the text instead.
    """
    if isinstance(condition, PairCondition):
        yield condition.pair
    elif isinstance(condition, WordCondition) and not condition.is_prefix and not condition.in_title:
        yield from map(word_pair, query_stems(condition.word))


def word_pair(stem: str) -> Pair:
    """Return the attribute-value pair ``word=stem``, under which documents with this stem are registered."""
    return f"word={stem}"


def _holds_as_written(condition: Condition, text: SearchableText, pairs: AbstractSet[Pair]) -> bool:
    if isinstance(condition, PairCondition):
        return condition.pair in pairs
    if isinstance(condition, PhraseCondition) or condition.in_title:
        return text.satisfies(condition)
    if condition.is_prefix:
        beginning = word_pair(condition.word)
        return any(pair.startswith(beginning) for pair in pairs) or text.satisfies(condition)
    # The title costs least. A channel's pairs include words of its latest entries, which its text lacks.
    if text.has_title_word(condition.word) or not pairs.isdisjoint(_pairs_of_word(condition.word)):
        return True
    return text.has_unregistered_stems and text.satisfies(condition)


@lru_cache(_CACHED_WORDS)
def _pairs_of_word(word: str) -> tuple[Pair, ...]:
    return tuple(map(word_pair, query_stems(word)))


def _has_stem(stemmed: str, text: SearchableText, pairs: AbstractSet[Pair]) -> bool:
    return word_pair(stemmed) in pairs or (text.has_unregistered_stems and text.has_stem(stemmed))


def _words_of(condition: Condition) -> tuple[str, ...]:
    match condition:
        case WordCondition(word):
            return (word,)
        case PhraseCondition(words):
            return tuple(filter(is_distinctive, words))
        case _:
            return ()
