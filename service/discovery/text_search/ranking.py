"""Ranking of search results: relevance first, then how many people subscribe, the asker's language, and recency.

The relevance of a document is BM25F: the sum over the clauses of the query of the importance of the clause times the
weight of its pair in the document (see ``searchable_text``). The other three are a prior: they raise the score by at
most ``_MAX_PRIOR`` each, so that they decide between documents of similar relevance. Documents with equal scores are
ordered by time, newest first, and then by name, so that the order is stable.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Final

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.candidates import MAX_WEIGHT, CandidateName, Clause

_DOCUMENTS: Final = 1_000_000
"""Number of documents in the formula of importance. Deviation from BM25: a constant, because no process knows it."""
_MAX_POPULARITY: Final = 1_000
"""Number of subscribers from which on more do not raise the score further."""
_HALF_LIFE_S: Final = 24 * 3600.0
"""Age at which recency counts half."""
_MAX_PRIOR: Final = {"subscribers": 0.1, "language": 0.1, "recency": 0.05}


class Circumstances(msgspec.Struct, frozen=True):
    """What is known of a document beside its text.

    ``subscribers`` is the number of subscribers of the channel. ``is_in_askers_language`` states whether its language
    is that of the asker. ``age_s`` is the time since its publication in seconds; None for channels.
    """

    subscribers: int
    is_in_askers_language: bool
    age_s: float | None


class ScoreParts(msgspec.Struct, frozen=True):
    """The score of a document, and its parts: the score is ``sum(clauses) * (1 + subscribers + language + recency)``.

    ``clauses`` has the relevance by clause.
    """

    total: float
    clauses: tuple[float, ...]
    subscribers: float
    language: float
    recency: float


def clause_importance(clause: Clause, frequencies: Mapping[Pair, int]) -> float:
    """Return the importance of a clause: the inverse document frequency of what was asked for.

    ``frequencies`` has the document frequency of each pair. Alternatives of a factor below 1 (similar words) count only
    if there are no others, so that a rare misspelling does not outweigh the right word.
    """
    best = max((each.factor for each in clause.alternatives if frequencies.get(each.pair, 0)), default=0.0)
    count = sum(frequencies.get(each.pair, 0) for each in clause.alternatives if each.factor == best)
    return log(1 + _DOCUMENTS / max(count, 1))


def score(candidate: CandidateName, importances: Sequence[float], circumstances: Circumstances) -> ScoreParts:
    """Return the score of a candidate; ``importances`` has the importance of each clause."""
    clauses = tuple(
        importance * weight / MAX_WEIGHT for importance, weight in zip(importances, candidate.weights, strict=True)
    )
    subscribers = _MAX_PRIOR["subscribers"] * min(1.0, log(1 + circumstances.subscribers) / log(1 + _MAX_POPULARITY))
    language = _MAX_PRIOR["language"] if circumstances.is_in_askers_language else 0.0
    age_s = circumstances.age_s
    recency = 0.0 if age_s is None else _MAX_PRIOR["recency"] * 0.5 ** (max(0.0, age_s) / _HALF_LIFE_S)
    return ScoreParts(sum(clauses) * (1 + subscribers + language + recency), clauses, subscribers, language, recency)
