"""The vocabulary: all words by which documents can be found, kept in memory to look up prefixes and misspelt words.

A word is stored as it occurs in documents, but folded (without case and accents), together with its stem.

The distance between two words is the number of wrong letters (the optimal string alignment distance). A wrong letter is
inserted, deleted, replaced, or swapped with its neighbour.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import OSA
from rapidfuzz.process import extract

MIN_TYPO_CHARS: Final = 4
"""Minimum length of words in which one wrong letter is tolerated."""
MIN_TWO_TYPOS_CHARS: Final = 8
"""Minimum length of words in which two wrong letters are tolerated."""

_END: Final = "\U0010ffff"
_NO_LETTERS: Final = np.empty(0, np.uint64)


class SimilarWord(msgspec.Struct, frozen=True):
    """A word of the vocabulary that matches a misspelt word or a prefix in a query.

    - ``word``: the word of the vocabulary.
    - ``stem``: the stem of ``word``.
    - ``distance``: the number of wrong letters in the misspelt word; 0 if the query contains a prefix of ``word``.
    """

    word: str
    stem: str
    distance: int = 0


class Vocabulary:
    """A set of words with their stems. A word has several stems if documents in several languages contain the word."""

    def __init__(self, words: Iterable[tuple[str, str]] = ()) -> None:
        """Create a vocabulary from tuples (folded word, stem of the word)."""
        self._stems: dict[str, tuple[str, ...]] = {}
        for word, stem in words:
            self._add_stem(word, stem)
        self._sorted = sorted(self._stems)
        self._by_length: dict[int, list[str]] = {}
        self._letters: dict[int, NDArray[np.uint64]] = {}
        """By length: the set of letters of each word in ``_by_length`` as a bit mask; computed when needed."""
        for word in self._sorted:
            self._by_length.setdefault(len(word), []).append(word)

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, words: Iterable[tuple[str, str]]) -> None:
        """Add words, given as tuples (folded word, stem). Tuples that are already present are ignored."""
        for word, stem in words:
            if self._add_stem(word, stem):
                insort(self._sorted, word)
                self._by_length.setdefault(len(word), []).append(word)

    def with_prefix(self, prefix: str, most: int) -> list[SimilarWord]:
        """Return words that begin with ``prefix``, shortest first.

        At most ``most`` words are returned, each with a different stem.
        """
        first, last = bisect_left(self._sorted, prefix), bisect_left(self._sorted, prefix + _END)
        return self._first_stems(((word, 0) for word in sorted(self._sorted[first:last], key=len)), most)

    def similar(self, word: str, most: int) -> list[SimilarWord]:
        """Return corrections for the misspelt ``word``, beginning with those that differ from it in the fewest letters.

        At most ``most`` corrections are returned, each with a different stem. The result is empty if ``word`` is short
        or contains characters other than letters.
        """
        # A number with another digit is no misspelling.
        tolerated = 0 if len(word) < MIN_TYPO_CHARS or not word.isalpha() else 1 + (len(word) >= MIN_TWO_TYPOS_CHARS)
        if not tolerated:
            return []
        found: list[tuple[str, int]] = []
        for length in range(len(word) - tolerated, len(word) + tolerated + 1):
            # A replaced letter counts twice, because each of the two words then contains a letter that the other lacks.
            # A missing or additional letter counts once, and there is one for each letter of difference in length.
            candidates = self._with_similar_letters(word, length, 2 * tolerated - abs(length - len(word)))
            nearest = extract(word, candidates, scorer=OSA.distance, score_cutoff=tolerated, limit=4 * most)
            found += [(candidate, int(distance)) for candidate, distance, _ in nearest if candidate != word]
        # Errors in the first letter are rare.
        found.sort(key=lambda one: (one[1], one[0][0] != word[0], abs(len(one[0]) - len(word)), one[0]))
        return self._first_stems(found, most)

    def _with_similar_letters(self, word: str, length: int, most: int) -> Sequence[str]:
        """Return the words of ``length`` letters that contain nearly the same set of letters as ``word``.

        ``most`` is the maximum number of letters that occur in only one of the two words.

        The test is fast. It ignores the order of the letters and how often each of them occurs.
        """
        # Letters whose code points are equal modulo 64 count as equal.
        words = self._by_length.get(length, [])
        letters = self._letters.get(length, _NO_LETTERS)
        if len(letters) < len(words):
            new = np.array([_letters_of(each) for each in words[len(letters) :]], np.uint64)
            letters = self._letters[length] = np.concatenate([letters, new])
        near = np.flatnonzero(np.bitwise_count(letters ^ np.uint64(_letters_of(word))) <= most)
        return [words[place] for place in near.tolist()]

    def _add_stem(self, word: str, stem: str) -> bool:
        """Add a new word, or another stem for a known word; return whether the word is new."""
        before = self._stems.get(word, ())
        if stem not in before:
            self._stems[word] = (*before, stem)
        return not before

    def _first_stems(self, words: Iterable[tuple[str, int]], most: int) -> list[SimilarWord]:
        found: dict[str, SimilarWord] = {}
        for word, distance in words:
            for stem in self._stems[word]:
                found.setdefault(stem, SimilarWord(word, stem, distance))
            if len(found) >= most:
                break
        return list(found.values())[:most]


def _letters_of(word: str) -> int:
    bits = 0
    for letter in word:
        bits |= 1 << (ord(letter) & 63)
    return bits
