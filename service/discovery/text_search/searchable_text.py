"""Searchable text: the analysed text of a channel or entry, by which searches find it.

The text has *fields*, such as a title and a summary. A word in a short field, or in a field that names the topic,
describes the document better than a word in a long text.

The weight of a stem follows BM25F (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond",
2009, §3.4):

- The frequency f of the stem is the sum of boost * occurrences / (1 - b + b * length / mean length) over all fields.
- The weight is f / (k1 + f) * the greatest possible weight.

Deviation: the mean length of a field is a constant, because no process reads all documents.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec

from service.discovery.queries.query import PhraseCondition, WordCondition
from service.discovery.search_candidates import MAX_WEIGHT
from service.discovery.word_analysis import (
    MAX_TEXT_CHARS,
    fold,
    is_distinctive,
    is_function_word,
    query_stems,
    stem,
    stem_beginning,
    text_language,
    without_umlauts,
    word_beginnings,
    word_parts,
    words,
)

MAX_TEXT_STEMS: Final = 40
"""Maximum number of stems with which a document is registered, in addition to those of its titles."""
MAX_TITLE_STEMS: Final = 16

_SATURATION = 1.2
"""k1 of BM25: the frequency at which a stem has half of the maximum weight."""
_LENGTH_SHARE = 0.75
"""b of BM25F (0 to 1): the degree to which the frequencies of words are normalised by the length of their field."""


class TextField(msgspec.Struct, frozen=True):
    """One field of a document: its words in their original order, folded (without case and accents).

    Common words such as "the" are included.

    - ``boost``: how much one occurrence of a word counts.
    - ``mean_words``: the usual length of such a field, in words.
    - ``is_title``: whether conditions on the title apply to the field.
    """

    words: Sequence[str]
    boost: float
    mean_words: float
    is_title: bool = False


class SearchableText:
    """The text of a document (a channel or entry), in which searches look for words; analysed only when needed.

    - ``folded_title``: the title without case and accents, with a space at each end; only spaces if it is not given.
    """

    def __init__(
        self,
        analyse: Callable[[], Sequence[TextField]],
        declared_language: str,
        title: str = "",
        source: Iterable[str] = (),
        has_unregistered_stems: Callable[[], bool] = lambda: True,
    ) -> None:
        """Create the text of a document.

        - ``analyse``: function that returns the document's fields. It is called when the fields are first needed.
        - ``declared_language``: the language tag that the publisher declares; "" if there is none.
        - ``title``: the plain text of the title, with which a word is compared first.
        - ``source``: the plain texts of all fields. In most cases, they are enough to decide whether the document
          contains a word, without calling ``analyse``.
        - ``has_unregistered_stems``: function that returns whether the document may have stems with which it is not
          registered.
        """
        self._analyse = analyse
        self._declared_language = declared_language
        self.folded_title = f" {fold(title)} "
        self._source = source
        self._has_unregistered_stems = has_unregistered_stems

    @cached_property
    def fields(self) -> Sequence[TextField]:
        """The fields of the document."""
        return self._analyse()

    @cached_property
    def language(self) -> str:
        """The document's language (ISO 639-1), in which its words are stemmed; "" if it is unknown."""
        return text_language([word for field in self.fields for word in field.words], self._declared_language)

    @cached_property
    def has_unregistered_stems(self) -> bool:
        """Whether the text may have stems that are not among the attribute-value pairs of the document."""
        return self._has_unregistered_stems()

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of the document's words, without common words such as "the"."""
        return frozenset(self._stems_of(self.fields))

    @cached_property
    def title_stems(self) -> frozenset[str]:
        """The stems of the words in the document's titles, without common words such as "the"."""
        return frozenset(self._stems_of(field for field in self.fields if field.is_title))

    def has_title_word(self, word: str) -> bool:
        """Return whether the title contains the folded ``word`` between spaces, without an inflection.

        If the result is False, the title may nevertheless contain the word.
        """
        return word.isalnum() and f" {word} " in self.folded_title

    def has_stem(self, stemmed: str) -> bool:
        """Return whether ``stemmed`` is one of the document's :attr:`stems`; the text is analysed only in doubt."""
        if self._folded_source and stem_beginning(stemmed) not in self._source_without_umlauts:
            return False
        return stemmed in self.stems

    def satisfies(self, condition: WordCondition | PhraseCondition) -> bool:
        """Return whether the text contains the word or phrase of ``condition``.

        A word may be inflected, in any of the stemmed languages. A phrase must occur as written, except for case and
        accents.
        """
        if isinstance(condition, PhraseCondition) or condition.is_prefix:
            fields = [field for field in self.fields if field.is_title] if condition.in_title else self.fields
            if isinstance(condition, PhraseCondition):
                phrase = f" {' '.join(condition.words)} "
                return any(phrase in f" {' '.join(field.words)} " for field in fields)
            return any(word.startswith(condition.word) for word in _distinctive(fields))
        found = self._is_in_source(condition.word)
        if found is False or (found and not condition.in_title):
            return found
        stems = self.title_stems if condition.in_title else self.stems
        return not stems.isdisjoint(query_stems(condition.word))

    def _is_in_source(self, word: str) -> bool | None:
        """Return whether the plain texts of the fields contain ``word`` or an inflected form of it.

        The result is None if the fields must be analysed to decide this.
        """
        if not self._folded_source:
            return None
        if word.isalnum() and f" {word} " in self._folded_source:
            return True
        beginnings = word_beginnings(word)
        if not any(map(self._source_without_umlauts.__contains__, beginnings)):
            return False
        similar = (each for each in self._source_words if without_umlauts(each).startswith(beginnings))
        return False if all(map(frozenset(query_stems(word)).isdisjoint, map(query_stems, similar))) else None

    @cached_property
    def _folded_source(self) -> str:
        """The plain texts of all fields, folded and joined into one string with a space at each end.

        The string is empty if there are no plain texts, or if they are too long.
        """
        folded = fold(" ".join(self._source))
        return f" {folded} " if folded and len(folded) <= MAX_TEXT_CHARS else ""

    @cached_property
    def _source_without_umlauts(self) -> str:
        return without_umlauts(self._folded_source)

    @cached_property
    def _source_words(self) -> frozenset[str]:
        """The distinctive words in the plain texts of all fields, including the parts of words with dots."""
        return frozenset((*words(self._folded_source), *words(self._folded_source.replace(".", " "))))

    def stem(self, word: str) -> str:
        """Return the stem of a folded word in the document's language."""
        return stem(word, self.language)

    def weights(self) -> dict[str, int]:
        """Return the stems under which the document is registered, each with its weight (1 to 255).

        The stems that describe the document best are registered: up to ``MAX_TITLE_STEMS`` stems from the titles, and
        up to ``MAX_TEXT_STEMS`` other stems.
        """
        # Among equal weights, the longest are chosen, which are usually the rarest. Function words of the language are
        # chosen last.
        frequencies: dict[str, float] = {}
        for field in self.fields:
            norm = 1 - _LENGTH_SHARE + _LENGTH_SHARE * len(field.words) / field.mean_words
            for word in _distinctive([field]):
                found = self.stem(word)
                frequencies[found] = frequencies.get(found, 0.0) + field.boost / norm
        title = list(dict.fromkeys(self._stems_of(field for field in self.fields if field.is_title)))[:MAX_TITLE_STEMS]
        others = sorted(frequencies.keys() - set(title), key=lambda each: self._place(each, frequencies[each]))
        return {
            stemmed: max(1, round(MAX_WEIGHT * frequencies[stemmed] / (_SATURATION + frequencies[stemmed])))
            for stemmed in (*title, *others[:MAX_TEXT_STEMS])
        }

    def registered_words(self) -> dict[str, str]:
        """Return the words by which searches can find the document, each with its stem.

        A word is included if its stem is registered (see :meth:`weights`).
        """
        weights = self.weights()
        found = {word: self.stem(word) for word in _distinctive(self.fields)}
        return {word: stemmed for word, stemmed in found.items() if stemmed in weights}

    def _place(self, stemmed: str, frequency: float) -> tuple[bool, float, int, str]:
        """Return the sort key of a stem. The stems with the lowest sort keys are registered for searches.

        Frequent stems come first. Among stems of the same frequency, the longest come first. Function words such as
        "the" come after all other stems.

        - ``stemmed``: the stem.
        - ``frequency``: the stem's frequency in the document, as defined in the module's docstring (BM25F).
        """
        return is_function_word(stemmed, self.language), -frequency, -len(stemmed), stemmed

    def _stems_of(self, fields: Iterable[TextField]) -> Iterator[str]:
        return map(self.stem, _distinctive(fields))


def text_field(text: str, *, boost: float, mean_words: float, is_title: bool = False) -> TextField:
    """Return a field with the words of ``text``; the other parameters are as in :class:`TextField`."""
    return TextField(words(text, include_common=True), boost, mean_words, is_title)


def _distinctive(fields: Iterable[TextField]) -> Iterator[str]:
    """Yield the words of ``fields`` that can be searched for; common words such as "the" are left out.

    After a word that contains dots, such as "node.js", its parts are also yielded.
    """
    for field in fields:
        for word in field.words:
            if is_distinctive(word):
                yield word
                if "." in word:
                    yield from word_parts(word)
