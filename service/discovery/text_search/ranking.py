"""Ranking of search results: relevance first, then words as written, language, subscribers and recency.

The relevance of a document is BM25F: the sum over the clauses of the query of the importance of the clause times the
weight of its pair in the document (see ``searchable_text``). The others raise the score by at most a fixed share each,
so that they decide between documents of similar relevance: whether the document has the words of the query as they are
written rather than inflected, whether it is in the asker's language, how many people subscribe to its channel, and how
recent it is. Documents with equal scores are ordered by time, newest first, and then by name: the order is stable.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Final

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.search_candidates import MAX_WEIGHT, CandidateName, Clause

_DOCUMENTS: Final = 100_000
"""Number of documents in the formula of importance. Deviation from BM25: a constant, because no process knows it."""
_MAX_POPULARITY: Final = 1_000
"""Number of subscribers from which on more do not raise the score further."""
_HALF_LIFE_S: Final = 24 * 3600.0
"""Age at which recency counts half."""
_MAX_AS_WRITTEN: Final = 0.1
_MAX_LANGUAGE: Final = 0.3
_MAX_SUBSCRIBERS: Final = 0.1
_MAX_RECENCY: Final = 0.05


class Circumstances(msgspec.Struct, frozen=True):
    """What else is known of a document.

    ``as_written`` is the share (0 to 1) of the query's words that it has as they are written.
    ``is_in_askers_language`` states whether its language is that of the asker. ``subscribers`` is the number of
    subscribers of the channel. ``age_s`` is the time since its publication in seconds; None for channels.
    """

    as_written: float
    is_in_askers_language: bool
    subscribers: int
    age_s: float | None


class ScoreParts(msgspec.Struct, frozen=True):
    """The score of a document, ``total``, and its parts.

    ``clauses`` has the relevance by clause; the total is their sum times 1 plus the other parts.
    """

    total: float
    clauses: tuple[float, ...]
    as_written: float
    language: float
    subscribers: float
    recency: float


def clause_importance(clause: Clause, frequencies: Mapping[Pair, int]) -> float:
    """Return the importance of a clause: the inverse document frequency of what was asked for.

    ``frequencies`` has the document frequency of each pair. Alternatives of a factor below 1 (similar words) count only
    if there are no others, so that a rare misspelling does not outweigh the right word.
    """
    best = max((each.factor for each in clause.alternatives if frequencies.get(each.pair, 0)), default=0.0)
    count = sum(frequencies.get(each.pair, 0) for each in clause.alternatives if each.factor == best)
    return log(1 + _DOCUMENTS / max(count, 1))


def coverage(clauses: Sequence[Clause], candidate: CandidateName, importances: Sequence[float]) -> float:
    """Return the sum of importance * factor over the optional clauses that a candidate satisfies.

    ``importances`` has the importance of each of ``clauses``. Candidates with a greater sum precede others.
    """
    return sum(
        importance * next(each.factor for each in clause.alternatives if each.pair == pair)
        for clause, weight, pair, importance in zip(
            clauses, candidate.weights, candidate.pairs, importances, strict=True
        )
        if clause.is_optional and weight
    )


def score(candidate: CandidateName, importances: Sequence[float], circumstances: Circumstances) -> ScoreParts:
    """Return the score of a candidate; ``importances`` has the importance of each clause."""
    clauses = tuple(
        importance * weight / MAX_WEIGHT for importance, weight in zip(importances, candidate.weights, strict=True)
    )
    known = circumstances
    as_written = _MAX_AS_WRITTEN * known.as_written
    language = _MAX_LANGUAGE if known.is_in_askers_language else 0.0
    subscribers = _MAX_SUBSCRIBERS * min(1.0, log(1 + known.subscribers) / log(1 + _MAX_POPULARITY))
    recency = 0.0 if known.age_s is None else _MAX_RECENCY * 0.5 ** (max(0.0, known.age_s) / _HALF_LIFE_S)
    total = sum(clauses) * (1 + as_written + language + subscribers + recency)
    return ScoreParts(total, clauses, as_written, language, subscribers, recency)
