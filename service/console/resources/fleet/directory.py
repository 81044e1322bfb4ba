"""The Directory page and its API operations: searches with an explanation, matrices, and directories in memory.

The directory registers channels and entries by their attribute-value pairs. For each pair, the store keeps a matrix: a
grid of cells that list the channels or entries with this pair. For frequently requested pairs, workers also keep a
directory in memory.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations, Parameter
from service.console.app_keys import STORE
from service.console.auth.permissions import read_access
from service.console.forms import redisplay_on_error
from service.console.page_rendering import render
from service.console.resources.fleet.search_explanation import SearchResult, get_search
from service.discovery.av_pairs import ContentKind
from service.discovery.partial_lookup import placement_metrics, strategies
from service.discovery.partial_lookup.strategy_choice import DirectoryChoice, Rule
from service.errors import NotFound
from service.model import ChannelId
from service.store import Store

operation = OPERATIONS = Operations()


class Matrix(msgspec.Struct, frozen=True):
    """The matrix of an attribute-value pair: a grid of cells that lists the channels or entries with this pair.

    - ``about``: whether channels or entries are listed.
    - ``pair``: the attribute-value pair, for example ``tag=python``.
    - ``partitions``: the number of parts into which the list is divided.
    - ``replicas``: the number of copies of the list. Each copy has one cell for each part.
    - ``names``: the number of channels or entries in each part, counted in the first copy.
    """

    about: ContentKind
    pair: str
    partitions: int
    replicas: int
    names: tuple[int, ...]


class Matrices(msgspec.Struct, frozen=True):
    """All matrices with more than one cell, the largest first. Most matrices have a single cell and are not listed."""

    items: tuple[Matrix, ...]


class DirectoryReason(msgspec.Struct, frozen=True):
    """A rule that led to the choice of a strategy for a directory in the workers' memory.

    The strategy determines which workers store each entry of the directory.

    - ``rule``: the name of the rule.
    - ``words``: an explanation of the rule.
    - ``value``, ``bound``: the two numbers that the rule compares.
    """

    rule: Rule
    words: str
    value: float
    bound: float


class MemoryDirectory(msgspec.Struct, frozen=True):
    """A directory that workers keep in memory: a list of the channels with one attribute-value pair (AV-pair).

    The channels are the entries of the directory, and each entry is stored on some of the workers.

    - ``pair`` is the AV-pair, for example ``tag=python``.
    - ``strategy`` is the partial-lookup strategy, which determines which workers store each entry. ``reasons`` are
      the reasons for choosing it.
    - ``target`` is t, the number of entries that a lookup should return.
    - ``entries`` is h, the number of entries in the directory.
    - ``servers`` is n, the number of workers.

    The following numbers are computed with formulas from the paper on partial lookup:

    - ``stored`` is the number of copies of entries on all workers.
    - ``coverage`` is the number of different entries that lookups can find.
    - ``lookup_cost`` is the number of workers that a lookup queries.
    - ``messages_per_update`` is the number of messages that an update needs.
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
    """The directories that workers keep in memory, sorted by attribute-value pair (AV-pair).

    Only AV-pairs that are often requested have such a directory.
    """

    items: tuple[MemoryDirectory, ...]


class DirectoryMetrics(msgspec.Struct, frozen=True):
    """The current metrics of a directory that workers keep in memory (§4 of the paper on partial lookup).

    They are computed from the entries that the directory's workers have now.

    - ``target`` is the number of entries that a lookup should return.
    - ``entries`` is the number of different entries in the directory.
    - ``servers`` is the number of workers.
    - ``answered`` is the number of workers that reported their entries. The others are treated as having no entries.
    - ``stored`` is the number of copies of entries on all workers.
    - ``coverage`` is the number of different entries that are stored on at least one worker.

    The following metrics are computed over all subsets of workers. They are null with more than 10 workers.

    - ``lookup_cost`` is the mean number of workers that a lookup queries.
    - ``fault_tolerance`` is the largest number of workers that may fail while lookups still find ``target`` entries,
      no matter which workers fail. It is -1 if lookups find fewer entries even without a failure.
    - ``unfairness`` measures how unevenly lookups return the different entries; 0 is perfectly fair.
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


@operation("GET", "/matrices", read_access("fleet"))
async def get_matrices(request: web.Request) -> Matrices:
    """List the directory's matrices with more than one cell.

    A matrix is the grid of cells that lists the channels or entries with one attribute-value pair.
    """
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
    """Show the Directory page: matrices and the directories in memory.

    If the URL's query contains a search, the page also shows its results and how they were found.
    """
    has_search = bool(request.query.get("q", "").strip())
    return await _page(request, result=await get_search(request) if has_search else None)


async def measure(store: Store, pair: str) -> DirectoryMetrics:
    """Return the current metrics of the directory that workers keep in memory for this attribute-value pair.

    Raises :class:`NotFound` if no worker has such a directory.
    """
    chosen = next((each for each in await store.worker_requests.directories() if each.pair == pair), None)
    if chosen is None:
        raise NotFound(f"No worker has a directory of “{pair}” in memory.")
    shares = await store.worker_requests.shares(pair)
    return await asyncio.to_thread(compute_metrics, chosen, shares)


def compute_metrics(chosen: DirectoryChoice, shares: Sequence[Sequence[ChannelId] | None]) -> DirectoryMetrics:
    """Return the metrics of the directory that ``chosen`` describes.

    ``shares`` contains, for each worker of the directory, the entries that the worker stores, or None if it did not
    reply. The first worker coordinates the directory.
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
