"""Searches in the directory, with an explanation of how their results were found and ranked."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from aiohttp import web

from service.console.api.operations import Operations, Parameter
from service.console.app_keys import SETTINGS, STORE
from service.console.auth.permissions import read_access
from service.discovery.av_pairs import ContentKind, Pair
from service.discovery.queries.query import SearchHit
from service.discovery.queries.query_parser import parse_query
from service.discovery.search_candidates import Clause, QueriedMatrix, WeightedPair
from service.discovery.text_search.ranking import ScoreParts
from service.model import ChannelId, Entry
from service.search.searcher import Searcher

operation = OPERATIONS = Operations()


class ClauseScore(msgspec.Struct, frozen=True):
    """The score of a search result for one clause (condition) of the query.

    ``pair`` is the attribute-value pair (AV-pair) of the result that satisfies the clause. ``relevance`` is the
    relevance of this pair.
    """

    pair: Pair
    relevance: float


class ItemScore(msgspec.Struct, frozen=True):
    """The score of a search result: ``total`` = c * (1 + as_written + subscribers + language + recency).

    Here, c is the sum of the relevance of all ``clauses``. The other terms are bonuses:

    - ``as_written`` increases with the share of the query's words that occur in the result in exactly the same form.
    - ``subscribers`` increases with the channel's number of subscribers.
    - ``language`` is positive if the channel is in the user's language.
    - ``recency`` decreases with the age of an entry.
    """

    total: float
    clauses: tuple[ClauseScore, ...]
    as_written: float
    subscribers: float
    language: float
    recency: float


class SearchItem(msgspec.Struct, frozen=True):
    """A search result: a channel or one of its entries, with a line from its text.

    ``lacks_words`` is true if the result contains only some of the query's words.
    """

    channel: ChannelId
    url: str
    title: str
    entry: Entry | None
    snippet: str
    lacks_words: bool
    score: ItemScore


class SearchAlternative(msgspec.Struct, frozen=True):
    """One of the alternatives in a clause: an attribute-value pair (AV-pair) that satisfies the clause.

    - ``factor`` is the similarity of the pair to the query's word: 1 for the word itself, otherwise less than 1.
    - ``names`` is the approximate number of channels or entries with this pair.
    - ``partitions`` and ``replicas`` are the dimensions of the pair's matrix: the grid of cells in which the channels
      or entries with this pair are registered.
    - ``cells`` is the number of cells of this matrix that were read.

    The dimensions and ``cells`` are 0 if the matrix was not needed.
    """

    pair: Pair
    factor: float
    names: int
    partitions: int
    replicas: int
    cells: int


class SearchClause(msgspec.Struct, frozen=True):
    """A condition of a query. A result satisfies the condition with any of the ``alternatives``.

    If ``is_optional`` is false, channels or entries that do not satisfy the condition are excluded from the results.
    ``importance`` is the weight of the condition in the score. It is the inverse document frequency, so that rare words
    count more.
    """

    importance: float
    is_optional: bool
    alternatives: tuple[SearchAlternative, ...]


class SearchCorrection(msgspec.Struct, frozen=True):
    """A word of the query that was not found, and the similar word that was searched for instead."""

    word: str
    replacement: str


class SearchResult(msgspec.Struct, frozen=True):
    """The results of a search in the directory, best first, and how they were found and ranked.

    - ``about`` states whether channels or entries were searched.
    - ``clauses`` are the conditions of the query.
    - ``excluded`` are attribute-value pairs, such as ``tag=python``, that results must not have.
    - ``corrections`` are the words of the query that were replaced with similar ones.
    - ``source`` is ``memory`` if workers answered from memory, and ``matrices`` if matrices in the store were read. A
      matrix is a grid of cells that lists the channels or entries with one attribute-value pair.
    - ``cells`` is the total number of cells that were read.
    - ``candidates`` is the number of channels or entries that were considered. The results leave out those that are
      private or do not match the query as written.
    - ``total`` is the number of all results; null means that it is unknown.
    - ``has_more`` is true if there are further results.
    - ``took_s`` is the duration of the whole search in seconds.
    """

    items: tuple[SearchItem, ...]
    about: ContentKind
    clauses: tuple[SearchClause, ...]
    excluded: tuple[Pair, ...]
    corrections: tuple[SearchCorrection, ...]
    source: Literal["matrices", "memory"]
    cells: int
    candidates: int
    total: int | None
    has_more: bool
    took_s: float


@operation(
    "GET",
    "/search",
    read_access("fleet"),
    422,
    query=(Parameter("q", "query", 'Search query as in chat, for example `python lang:en -snake author:"Jane Doe"`.'),),
)
async def get_search(request: web.Request) -> SearchResult:
    """Search the directory for channels or entries, with an explanation of how the query was answered."""
    query = parse_query(request.query.get("q", ""), datetime.now(UTC).date())
    began_s = time.monotonic()
    found = await Searcher(request.app[STORE], request.app[SETTINGS].public_from_subscribers).explain(query)
    answer, candidates = found.answer, found.candidates
    queried = {matrix.pair: matrix for matrix in candidates.queried}
    hits = zip(answer.hits, found.scores, found.pairs, strict=True)
    clauses = zip(found.expanded.clauses, found.importances, strict=True)
    return SearchResult(
        items=tuple(_item(*each) for each in hits),
        about=found.expanded.query.about,
        clauses=tuple(_clause(*each, candidates.frequencies, queried) for each in clauses),
        excluded=tuple(sorted(found.expanded.excluded)),
        corrections=tuple(SearchCorrection(each.word, each.replacement) for each in answer.corrections),
        source="memory" if candidates.found and not queried else "matrices",
        cells=sum(matrix.cells for matrix in candidates.queried),
        candidates=len(candidates.found),
        total=answer.total,
        has_more=answer.has_more,
        took_s=time.monotonic() - began_s,
    )


def _item(hit: SearchHit, parts: ScoreParts, pairs: Sequence[Pair]) -> SearchItem:
    """Return the search result for ``hit``, with an explanation of its score.

    ``parts`` are the parts of the score. ``pairs`` contains one AV-pair of the result for each clause of the query: the
    pair that determined the score for the clause.
    """
    channel = hit.channel
    clauses = tuple(ClauseScore(pair, value) for pair, value in zip(pairs, parts.clauses, strict=True) if value)
    score = ItemScore(parts.total, clauses, parts.as_written, parts.subscribers, parts.language, parts.recency)
    return SearchItem(channel.id, channel.url, channel.title, hit.entry, hit.snippet, hit.lacks_words, score)


def _clause(
    clause: Clause, importance: float, frequencies: Mapping[Pair, int], queried: Mapping[Pair, QueriedMatrix]
) -> SearchClause:
    alternatives = (_alternative(each, frequencies, queried) for each in clause.alternatives)
    return SearchClause(importance, clause.is_optional, tuple(alternatives))


def _alternative(
    each: WeightedPair, frequencies: Mapping[Pair, int], queried: Mapping[Pair, QueriedMatrix]
) -> SearchAlternative:
    matrix = queried.get(each.pair)
    partitions, replicas, cells = (matrix.size.partitions, matrix.size.replicas, matrix.cells) if matrix else (0, 0, 0)
    return SearchAlternative(each.pair, each.factor, frequencies.get(each.pair, 0), partitions, replicas, cells)
