"""Ranking of search results: relevance first, then words as written, language, subscribers and recency.

The relevance of a document (channel or entry) is its BM25F score: the sum of importance * weight over the parts of the
query. The weight states how well a word describes the document (see ``searchable_text``).

Four other signals raise the score, each by at most a fixed fraction. They therefore decide between documents of similar
relevance:

- the fraction of the query's words that the document contains as written rather than inflected
- whether the document is in the user's language
- the number of subscribers of its channel
- its recency

Documents with equal scores are sorted by time, newest first, and then by name, so that the order is stable.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Final

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.search_candidates import MAX_WEIGHT, CandidateName, Clause

_DOCUMENTS: Final = 100_000
"""Number of documents N in the importance of a clause, log(1 + N / document frequency).

Deviation from BM25: N is a constant, because no process counts the documents.
"""
_MAX_POPULARITY: Final = 1_000
"""Number of subscribers with which a channel gets the full bonus for popularity."""
_MAX_POPULARITY_LOG: Final = log(1 + _MAX_POPULARITY)
_HALF_LIFE_S: Final = 24 * 3600.0
"""Time in which the bonus for recency falls to a half."""
_MAX_AS_WRITTEN: Final = 0.1
_MAX_LANGUAGE: Final = 0.3
_MAX_SUBSCRIBERS: Final = 0.1
_MAX_RECENCY: Final = 0.05


class RankingSignals(msgspec.Struct, frozen=True):
    """The signals other than relevance by which a document (channel or entry) is ranked.

    - ``as_written``: the fraction of the query's words that the document contains as written.
    - ``is_in_askers_language``: whether the document is in the language of the user who searches.
    - ``subscribers``: the number of subscribers of the document's channel.
    - ``age_s``: how many seconds ago the document was published; None for channels.
    """

    as_written: float
    is_in_askers_language: bool
    subscribers: int
    age_s: float | None


class ScoreParts(msgspec.Struct, frozen=True):
    """The score of a document, ``total``, and the parts from which it is computed.

    ``clauses`` contains the relevance for each clause (word, phrase or attribute) of the query. The other parts are
    bonuses:

    ``total`` = sum(``clauses``) * (1 + ``as_written`` + ``language`` + ``subscribers`` + ``recency``)
    """

    total: float
    clauses: tuple[float, ...]
    as_written: float
    language: float
    subscribers: float
    recency: float


def clause_importance(clause: Clause, frequencies: Mapping[Pair, int]) -> float:
    """Return the importance of a clause for the ranking: the fewer documents have its pairs, the higher it is.

    A clause is a set of alternative attribute-value pairs. The importance is an inverse document frequency. Only
    the best alternatives count: those with the highest factor among the alternatives that at least one document
    has. ``frequencies`` maps each pair to the number of documents that have it.
    """
    # A rare similar word therefore does not outweigh the word itself.
    best = max((each.factor for each in clause.alternatives if frequencies.get(each.pair, 0)), default=0.0)
    count = sum(frequencies.get(each.pair, 0) for each in clause.alternatives if each.factor == best)
    return log(1 + _DOCUMENTS / max(count, 1))


def score(candidate: CandidateName, importances: Sequence[float], signals: RankingSignals) -> ScoreParts:
    """Compute the score of a candidate from its relevance and from ``signals``.

    ``importances`` contains the importance of each clause of the query.
    """
    weighted = zip(importances, candidate.weights, strict=True)
    clauses = tuple([importance * weight / MAX_WEIGHT for importance, weight in weighted])
    as_written = _MAX_AS_WRITTEN * signals.as_written
    language = _MAX_LANGUAGE if signals.is_in_askers_language else 0.0
    subscribers = _MAX_SUBSCRIBERS * min(1.0, log(1 + signals.subscribers) / _MAX_POPULARITY_LOG)
    recency = 0.0 if signals.age_s is None else _MAX_RECENCY * 0.5 ** (max(0.0, signals.age_s) / _HALF_LIFE_S)
    total = sum(clauses) * (1 + as_written + language + subscribers + recency)
    return ScoreParts(total, clauses, as_written, language, subscribers, recency)
