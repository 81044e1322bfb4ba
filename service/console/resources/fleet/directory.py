"""The page Directory and its API operations: searches with an explanation, matrices, and directories in memory."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
from aiohttp import web

from service.console.auth.roles import read_access
from service.console.forms import redisplay_on_error
from service.console.openapi import Operations, Parameter
from service.console.rendering import SETTINGS, STORE, render
from service.discovery.av_pairs import ContentKind, Pair
from service.discovery.candidates import Clause, QueriedMatrix, WeightedPair
from service.discovery.partial import placement_metrics, strategies
from service.discovery.partial.strategy_choice import DirectoryChoice, Rule
from service.discovery.queries.query import SearchHit
from service.discovery.queries.query_parser import parse_query
from service.discovery.text_search.ranking import ScoreParts
from service.errors import NotFound
from service.model import ChannelId, Entry
from service.search import Searcher
from service.store import Store

operation = OPERATIONS = Operations()


class ClauseScore(msgspec.Struct, frozen=True):
    """The AV-pair of a search result that counted for a clause of the query, and its relevance."""

    pair: Pair
    relevance: float


class ItemScore(msgspec.Struct, frozen=True):
    """The score of a search result: the sum of the relevance of all clauses, times 1 + the other numbers.

    ``as_written`` stands for the share of the query's words that the result contains in the same form, ``subscribers``
    for the channel's number of subscribers, ``language`` for a match with the user's language, and ``recency`` for the
    age of an entry.
    """

    total: float
    clauses: tuple[ClauseScore, ...]
    as_written: float
    subscribers: float
    language: float
    recency: float


class SearchItem(msgspec.Struct, frozen=True):
    """A search result: a channel, or one of its entries, with a line of its text.

    ``lacks_words`` says that it has only some of the query's words.
    """

    channel: ChannelId
    url: str
    title: str
    entry: Entry | None
    snippet: str
    lacks_words: bool
    score: ItemScore


class SearchAlternative(msgspec.Struct, frozen=True):
    """An attribute-value pair (AV-pair), one of those that satisfy a clause of a query.

    ``factor`` is less than 1 for words that are only similar to the query's word. ``names`` is the approximate number
    of channels or entries with this pair. They are stored in the pair's matrix of ``partitions`` by ``replicas`` cells,
    of which ``cells`` were read; all three are 0 if the matrix was not needed.
    """

    pair: Pair
    factor: float
    names: int
    partitions: int
    replicas: int
    cells: int


class SearchClause(msgspec.Struct, frozen=True):
    """A condition of a query, which every result satisfies with one of the alternatives unless it ``is_optional``.

    ``importance`` is the inverse document frequency: rare words count more.
    """

    importance: float
    is_optional: bool
    alternatives: tuple[SearchAlternative, ...]


class SearchCorrection(msgspec.Struct, frozen=True):
    """A word of the query that was not found, and the similar word that was."""

    word: str
    replacement: str


class SearchResult(msgspec.Struct, frozen=True):
    """The results of a search in the directory, best first, and how they were found and ranked.

    ``about`` states whether channels or entries were searched. ``excluded`` are the AV-pairs that no result may have.
    ``source`` is ``memory`` if workers answered from memory; otherwise ``cells`` cells of ``matrices`` were read.
    ``candidates`` is the number of names that were found, before private ones and those that do not match as written
    were left out. ``total`` is the number of results if it is known. ``has_more`` says that there are further results.
    ``took_s`` is the duration of the whole search in seconds.
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


class Matrix(msgspec.Struct, frozen=True):
    """The matrix of an AV-pair, a grid of cells: each partition stores a part of the names, each replica a copy.

    ``names`` are the numbers of names in each partition's first replica.
    """

    about: ContentKind
    pair: str
    partitions: int
    replicas: int
    names: tuple[int, ...]


class Matrices(msgspec.Struct, frozen=True):
    """All matrices with more than one cell, the largest first. Most matrices have one cell and are not listed."""

    items: tuple[Matrix, ...]


class DirectoryReason(msgspec.Struct, frozen=True):
    """A reason for the choice of a strategy: the rule that was followed, and its explanation in words.

    The rule compared ``value`` with ``bound``.
    """

    rule: Rule
    words: str
    value: float
    bound: float


class MemoryDirectory(msgspec.Struct, frozen=True):
    """The directory of an AV-pair that workers keep in memory, with its partial-lookup strategy and the reasons for it.

    ``target`` is t, the number of entries that a lookup should return. ``entries`` is h, the number of entries, and
    ``servers`` is n, the number of workers. The other numbers follow from the paper's formulas: ``stored`` is the
    number of copies on all workers, ``coverage`` the number of different entries that can be found, ``lookup_cost`` the
    number of workers that a lookup queries, and ``messages_per_update`` the number of messages per update.
    """

    pair: str
    strategy: str
    target: int
    entries: int
    servers: int
    updates_per_lookup: float
    stored: float
    coverage: float
    lookup_cost: float
    messages_per_update: float
    reasons: tuple[DirectoryReason, ...]


class MemoryDirectories(msgspec.Struct, frozen=True):
    """The directories that workers keep in memory, ordered by AV-pair.

    Only AV-pairs that are often requested have such a directory.
    """

    items: tuple[MemoryDirectory, ...]


class DirectoryMetrics(msgspec.Struct, frozen=True):
    """The metrics of partial lookup (paper §4) for one directory, from the entries that its workers have now.

    ``answered`` of ``servers`` workers reported their entries; the others count as empty. The directory has ``entries``
    different entries. The workers have ``stored`` copies, of ``coverage`` different entries. The following metrics are
    for lookups of ``target`` entries. They are null with more than 10 workers, because they are computed over all
    subsets of workers.

    - ``lookup_cost`` is the mean number of workers that a lookup queries.
    - ``fault_tolerance`` is the number of workers that may fail, whichever they are, before a lookup finds fewer
      entries. It is -1 if lookups already find fewer.
    - ``unfairness`` is the deviation from returning all entries equally often; 0 is fair.
    """

    pair: str
    strategy: str
    target: int
    entries: int
    servers: int
    answered: int
    stored: int
    coverage: int
    lookup_cost: float | None
    fault_tolerance: int | None
    unfairness: float | None


_MAX_SERVERS: Final = 10
"""Maximum number of workers for metrics over all subsets of workers: 10 workers with 2,000 entries take about 0.1 s."""

_RULE_DESCRIPTIONS: Final = {
    Rule.ALL_NEEDED: "t·n/h copies of each entry mean that every server stores all of them.",
    Rule.FEW_UPDATES: "Few updates per lookup, so the quality of answers decides.",
    Rule.MANY_UPDATES: "Many updates per lookup, so the cost of updates decides.",
    Rule.FITS: "Each server has enough space for its share of the copies.",
    Rule.TOO_MANY: "Each server's share of the copies would be too large, so it is limited.",
    Rule.FIXED_CHEAPER: "Fixed-x needs fewer messages per update than Hash-y.",
    Rule.HASH_CHEAPER: "Hash-y needs no more messages per update than Fixed-x.",
    Rule.CUSHION: "This many entries more than t are stored as a cushion against deletions.",
}


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
    """Return a search result. ``pairs`` has the AV-pair that counted for each clause of the query."""
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


@operation("GET", "/matrices", read_access("fleet"))
async def get_matrices(request: web.Request) -> Matrices:
    """List the directory's matrices with more than one cell."""
    store, matrices = request.app[STORE], []
    kinds: tuple[ContentKind, ContentKind] = ("channel", "entry")
    for about, directory in zip(kinds, (store.channel_directory, store.entry_directory), strict=True):
        for pair, size in (await directory.matrix_sizes()).items():
            cells = await directory.cells_of(pair)
            names = tuple(answer.load.names for place, answer in cells if place.replica == 0)
            matrices.append(Matrix(about, pair, size.partitions, size.replicas, names))
    matrices.sort(key=lambda each: (-each.partitions * each.replicas, each.about, each.pair))
    return Matrices(tuple(matrices))


@operation("GET", "/directories", read_access("fleet"))
async def get_directories(request: web.Request) -> MemoryDirectories:
    """List the directories that workers keep in memory, with their strategies and the reasons."""
    return MemoryDirectories(tuple(map(_memory_directory, await request.app[STORE].worker_requests.directories())))


@operation(
    "GET",
    "/directories/metrics",
    read_access("fleet"),
    404,
    query=(Parameter("pair", "query", "AV-pair of the directory, like `tag=python`."),),
)
async def get_directory_metrics(request: web.Request) -> DirectoryMetrics:
    """Measure one directory in memory, from the entries that each worker has now."""
    return await measure(request.app[STORE], request.query.get("pair", ""))


async def _page(
    request: web.Request, status: int = 200, *, error: str = "", result: SearchResult | None = None
) -> web.Response:
    matrices, directories = await asyncio.gather(get_matrices(request), get_directories(request))
    metrics: DirectoryMetrics | None = None
    if "measure" in request.query:
        with suppress(NotFound):  # the workers have dropped the directory since; the page's list shows that
            metrics = await measure(request.app[STORE], request.query["measure"])
    return render(
        request,
        "directory.html",
        status,
        result=result,
        matrices=matrices.items,
        directories=directories.items,
        metrics=metrics,
        error=error,
    )


@redisplay_on_error(_page)
async def page(request: web.Request) -> web.Response:
    """Show the directory. If the query has a search, show its results and how it was answered."""
    has_search = bool(request.query.get("q", "").strip())
    return await _page(request, result=await get_search(request) if has_search else None)


async def measure(store: Store, pair: str) -> DirectoryMetrics:
    """Return the metrics of the directory of the AV-pair ``pair`` in the workers' memory, from its present entries.

    Raises :class:`NotFound` if no worker has such a directory.
    """
    chosen = next((each for each in await store.worker_requests.directories() if each.pair == pair), None)
    if chosen is None:
        raise NotFound(f"No worker has a directory of “{pair}” in memory.")
    shares = await store.worker_requests.shares(pair)
    return await asyncio.to_thread(compute_metrics, chosen, shares)


def compute_metrics(chosen: DirectoryChoice, shares: Sequence[Sequence[ChannelId] | None]) -> DirectoryMetrics:
    """Return the metrics of the directory ``chosen``.

    ``shares`` has the entries that each of its workers stores, beginning with the worker that coordinates the
    directory; None for a worker that did not reply.
    """
    known = sorted({name for share in shares for name in share or ()})
    # Only the number of entries without a copy is known. They count as never returned.
    entries = known + [f"absent {number}" for number in range(chosen.measured.entries - len(known))]
    placed = placement_metrics.placement([share or () for share in shares], entries)
    target = min(chosen.measured.target, len(entries))
    cost = tolerance = unfair = None
    if 0 < len(shares) <= _MAX_SERVERS and entries:
        taken = placement_metrics.lookup_steps(chosen.choice.strategy, len(shares))
        costs = placement_metrics.lookup_costs(placed, taken)
        cost = float(costs[min(target, len(costs) - 1)])
        tolerance = int(placement_metrics.fault_tolerances(placed)[target])
        unfair = placement_metrics.unfairness(placement_metrics.retrieval_chances(placed, target, taken), target)
    return DirectoryMetrics(
        pair=chosen.pair,
        strategy=strategies.strategy_name(chosen.choice.strategy),
        target=chosen.measured.target,
        entries=len(entries),
        servers=len(shares),
        answered=sum(share is not None for share in shares),
        stored=placement_metrics.storage(placed),
        coverage=placement_metrics.coverage(placed),
        lookup_cost=cost,
        fault_tolerance=tolerance,
        unfairness=unfair,
    )


def _memory_directory(chosen: DirectoryChoice) -> MemoryDirectory:
    measured, choice = chosen.measured, chosen.choice
    parameters = choice.strategy, measured.entries, max(measured.servers, 1)
    return MemoryDirectory(
        pair=chosen.pair,
        strategy=strategies.strategy_name(choice.strategy),
        **msgspec.structs.asdict(measured),
        stored=strategies.expected_storage(*parameters),
        coverage=strategies.expected_coverage(*parameters),
        lookup_cost=strategies.expected_lookup_cost(choice.strategy, measured.target, measured.entries, parameters[2]),
        messages_per_update=strategies.expected_overhead(*parameters),
        reasons=tuple(
            DirectoryReason(why.rule, _RULE_DESCRIPTIONS[why.rule], why.value, why.bound) for why in choice.reasons
        ),
    )
