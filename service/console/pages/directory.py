"""The directory: searches and how they were answered, grown matrices, directories in memory; as page and in the API."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import web

from service.console.auth.roles import look
from service.console.error_responses import in_plain_words
from service.console.openapi import Operations, Parameter
from service.console.rendering import SETTINGS, STORE, render
from service.discovery.av_pairs import ContentKind
from service.discovery.partial.placement_metrics import (
    coverage,
    fault_tolerances,
    lookup_costs,
    lookup_steps,
    placement,
    retrieval_chances,
    storage,
    unfairness,
)
from service.discovery.partial.strategies import expected_coverage, expected_overhead, expected_storage, strategy_name
from service.discovery.partial.strategy_choice import DirectoryChoice, Rule
from service.discovery.query_parser import parse_query
from service.discovery.search_policy import OVERFETCH_FACTORS
from service.errors import CoronetError, NotFound, StoreUnavailable
from service.model import ChannelId, Entry
from service.search import Searcher, directory_of
from service.store import Store

operation = OPERATIONS = Operations()


class SearchItem(msgspec.Struct, frozen=True):
    """A channel that was found, or an entry of it."""

    channel: ChannelId
    url: str
    title: str
    entry: Entry | None


class SearchResult(msgspec.Struct, frozen=True):
    """What people find by a query, and how the matrices answer it.

    ``pairs`` is the query as it was understood; ``asked`` the pair whose matrix was asked, in ``cells`` of its
    ``partitions`` by ``replicas``; ``complete``: the directory has no others.
    """

    items: tuple[SearchItem, ...]
    about: ContentKind
    pairs: tuple[str, ...]
    asked: str
    partitions: int
    replicas: int
    cells: int
    complete: bool
    took_s: float


class Matrix(msgspec.Struct, frozen=True):
    """A matrix with several cells; ``names`` in each partition's first replica."""

    about: ContentKind
    pair: str
    partitions: int
    replicas: int
    names: tuple[int, ...]


class Matrices(msgspec.Struct, frozen=True):
    """All matrices with several cells, the largest first. Those of one cell, which are most, are not listed."""

    items: tuple[Matrix, ...]


class DirectoryReason(msgspec.Struct, frozen=True):
    """A rule that decided, in words, and the value that was compared with its bound."""

    rule: Rule
    words: str
    value: float
    bound: float


class MemoryDirectory(msgspec.Struct, frozen=True):
    """A directory that the workers keep in memory: of which pair, by which strategy, and why.

    ``target`` is t, how many entries lookups want; ``entries`` h, ``servers`` n. By the paper's formulas, from these:
    how many copies all servers keep together (``stored``), how many different entries can be had of them
    (``coverage``), and how many messages an update takes (``messages_per_update``).
    """

    pair: str
    strategy: str
    target: int
    entries: int
    servers: int
    updates_per_lookup: float
    stored: float
    coverage: float
    messages_per_update: float
    reasons: tuple[DirectoryReason, ...]


class MemoryDirectories(msgspec.Struct, frozen=True):
    """The directories in the workers' memory, by pair. A pair that is asked for little has none."""

    items: tuple[MemoryDirectory, ...]


class DirectoryMetrics(msgspec.Struct, frozen=True):
    """The metrics of partial lookup (§4) of one directory, from what its workers keep just now.

    ``answered`` of ``servers`` workers said what they keep; one that is silent counts as one that keeps nothing.
    ``stored`` copies are kept together, of ``coverage`` different ones of all ``entries``. For lookups of ``target``
    entries: how many workers are asked on average (``lookup_cost``), how many may fail, whichever they are, before some
    lookup finds less (``fault_tolerance``; -1 if lookups do already), and how far lookups are from returning every
    entry as often (``unfairness``; 0 is fair). These three are null with more than 10 workers: they go through all sets
    of them.
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


_LONGEST_QUERY: Final = 400
_DRAWN: Final = 50
_MOST_SERVERS: Final = 10
"""Of a directory of 2,000 entries, all sets of so many take a tenth of a second."""

_WORDS: Final = {
    Rule.ALL_NEEDED: "With t·n/h copies of each entry every server has all.",
    Rule.FEW_UPDATES: "Updates per lookup are rare, so that the quality of answers decides.",
    Rule.MANY_UPDATES: "Updates per lookup are frequent, so that what an update costs decides.",
    Rule.FITS: "A server has room for its share of the copies.",
    Rule.TOO_MANY: "A server's share of the copies would be too large, so it is bounded.",
    Rule.FIXED_CHEAPER: "Fixed-x takes fewer messages per update than Hash-y.",
    Rule.HASH_CHEAPER: "Hash-y takes no more messages per update than Fixed-x.",
    Rule.CUSHION: "So many entries more than t are kept, against deletes.",
}


@operation(
    "GET",
    "/search",
    look("fleet"),
    422,
    query=(Parameter("q", "query", 'What to look for, as in chat: `tag=python lang=en author="Jane Doe" limit 5`.'),),
)
async def get_search(request: web.Request) -> SearchResult:
    """Search the directory for channels, or entries, and say how the query was answered."""
    return await _search(request, request.query.get("q", ""))


async def _search(request: web.Request, text: str) -> SearchResult:
    """Search as people do in chat. Raises :class:`service.errors.BadQuery`."""
    query, store = parse_query(text), request.app[STORE]
    explained = await directory_of(store, query).find(query.pairs, OVERFETCH_FACTORS[0] * query.limit)
    found = await Searcher(store, request.app[SETTINGS].public_from_subscribers).find(query)
    return SearchResult(
        items=tuple(SearchItem(each.channel.id, each.channel.url, each.channel.title, each.entry) for each in found),
        about=query.about,
        pairs=query.pairs,
        asked=explained.queried_pair,
        partitions=explained.size.partitions,
        replicas=explained.size.replicas,
        cells=explained.cells,
        complete=explained.complete,
        took_s=explained.elapsed_s,
    )


@operation("GET", "/matrices", look("fleet"))
async def get_matrices(request: web.Request) -> Matrices:
    """The directory's matrices that have several cells."""
    store, found = request.app[STORE], []
    kinds: tuple[ContentKind, ContentKind] = ("channel", "entry")
    for about, directory in zip(kinds, (store.channel_directory, store.entry_directory), strict=True):
        for pair, size in (await directory.matrix_sizes()).items():
            cells = await directory.cells_of(pair)
            names = tuple(answer.load.names for place, answer in cells if place.replica == 0)
            found.append(Matrix(about, pair, size.partitions, size.replicas, names))
    found.sort(key=lambda each: (-each.partitions * each.replicas, each.about, each.pair))
    return Matrices(tuple(found))


@operation("GET", "/directories", look("fleet"))
async def get_directories(request: web.Request) -> MemoryDirectories:
    """The directories that workers keep in memory, with the strategy of each and why it is that."""
    return MemoryDirectories(tuple(map(_in_memory, await request.app[STORE].worker_requests.directories())))


@operation(
    "GET",
    "/directories/metrics",
    look("fleet"),
    404,
    query=(Parameter("pair", "query", "The directory's AV-pair, like `tag=python`."),),
)
async def get_directory_metrics(request: web.Request) -> DirectoryMetrics:
    """How good one directory in memory is, from what each worker keeps of it just now."""
    return await metrics(request.app[STORE], request.query.get("pair", ""))


async def page(request: web.Request) -> web.Response:
    """Show the directory; with a query, what people would find by it, and how."""
    query = request.query.get("q", "").strip()[:_LONGEST_QUERY]
    found: SearchResult | None = None
    error, status = "", 200
    if query:
        try:
            found = await _search(request, query)
        except StoreUnavailable:
            raise
        except CoronetError as wrong:
            error, status = in_plain_words(wrong), 422
    grown, kept = await asyncio.gather(get_matrices(request), get_directories(request))
    good: DirectoryMetrics | None = None
    if "measure" in request.query:
        with suppress(NotFound):  # it was forgotten since the page was made: then the list shows that
            good = await metrics(request.app[STORE], request.query["measure"])
    return render(
        request,
        "directory.html",
        status,
        query=query,
        found=found,
        matrices=grown.items,
        most_drawn=_DRAWN,
        kept=kept.items,
        good=good,
        error=error,
    )


async def metrics(store: Store, pair: str) -> DirectoryMetrics:
    """Return how good a directory in the workers' memory is. Raises :class:`NotFound`."""
    chosen = next((each for each in await store.worker_requests.directories() if each.pair == pair), None)
    if chosen is None:
        raise NotFound(f"No worker keeps a directory of “{pair}” in memory now.")
    shares = await store.worker_requests.shares(pair)
    return await asyncio.to_thread(measured, chosen, shares)


def measured(chosen: DirectoryChoice, shares: Sequence[Sequence[ChannelId] | None]) -> DirectoryMetrics:
    """Return the metrics of a directory of which the workers keep these shares; the coordinator's is the first."""
    known = sorted({name for share in shares for name in share or ()})
    # What nobody has is known by number only; it counts as never returned.
    entries = known + [f"absent {number}" for number in range(chosen.measured.entries - len(known))]
    placed = placement([share or () for share in shares], entries)
    target = min(chosen.measured.target, len(entries))
    cost = tolerance = unfair = None
    if 0 < len(shares) <= _MOST_SERVERS and entries:
        taken = lookup_steps(chosen.choice.strategy, len(shares))
        costs = lookup_costs(placed, taken)
        cost = float(costs[min(target, len(costs) - 1)])
        tolerance = int(fault_tolerances(placed)[target])
        unfair = unfairness(retrieval_chances(placed, target, taken), target)
    return DirectoryMetrics(
        pair=chosen.pair,
        strategy=strategy_name(chosen.choice.strategy),
        target=chosen.measured.target,
        entries=len(entries),
        servers=len(shares),
        answered=sum(share is not None for share in shares),
        stored=storage(placed),
        coverage=coverage(placed),
        lookup_cost=cost,
        fault_tolerance=tolerance,
        unfairness=unfair,
    )


def _in_memory(chosen: DirectoryChoice) -> MemoryDirectory:
    measured, choice = chosen.measured, chosen.choice
    told = choice.strategy, measured.entries, max(measured.servers, 1)
    return MemoryDirectory(
        pair=chosen.pair,
        strategy=strategy_name(choice.strategy),
        target=measured.target,
        entries=measured.entries,
        servers=measured.servers,
        updates_per_lookup=measured.updates_per_lookup,
        stored=expected_storage(*told),
        coverage=expected_coverage(*told),
        messages_per_update=expected_overhead(*told),
        reasons=tuple(DirectoryReason(why.rule, _WORDS[why.rule], why.value, why.bound) for why in choice.reasons),
    )
