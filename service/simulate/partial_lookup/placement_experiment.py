"""Simulated placements of a directory's entries on servers (§4), for Table 1 and Figures 3, 5, 6 and 8.

No entries are added or deleted. The servers are production code. An *instance* is one placement of all entries. Entries
have different names in each instance, so that hash functions place them differently. The metrics of an instance are
computed exactly, not estimated from a sample of lookups.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count

import msgspec
import numpy as np

from service.discovery.partial_lookup.lookup_client import PartialLookup, choose_coordinator, lookup_order
from service.discovery.partial_lookup.placement_metrics import (
    Bools,
    coverage,
    fault_tolerances,
    lookup_costs,
    lookup_steps,
    placement,
    retrieval_chances,
    storage,
    unfairness,
)
from service.discovery.partial_lookup.servers import Place, Request, SendToServer, make_server
from service.discovery.partial_lookup.strategies import (
    Fixed,
    FullReplication,
    Hash,
    RandomServer,
    RoundRobin,
    Strategy,
    expected_coverage,
    expected_storage,
    strategy_name,
)


class SimulatedDirectory:
    """All servers of one directory, which run the same code as the product's workers.

    ``processed`` counts the messages that servers process.
    """

    def __init__(self, strategy: Strategy, servers: int, draw: Callable[[], float]) -> None:
        """Create the servers. Each call of ``draw`` returns a random number in [0, 1)."""
        self.strategy = strategy
        self.servers = [make_server(strategy, me, servers) for me in range(servers)]
        self.processed = 0
        """Number of messages processed by servers: requests of clients, and one per server for a broadcast (§6.4)."""
        self._draw = draw

    @property
    def shares(self) -> list[Collection[str]]:
        """The entries that each server stores, in the order of the servers."""
        return [server.entries for server in self.servers]

    def request(self, request: Request) -> None:
        """Execute a client's request, including all messages that it causes between servers."""
        coordinator = choose_coordinator(self.strategy, len(self.servers), self._draw())
        self.processed += 1
        under_way: deque[SendToServer] = deque(self.servers[coordinator].on_request(request))
        while under_way:
            sent = under_way.popleft()
            self.processed += 1
            under_way.extend(self.servers[sent.to].on_message(sent.message, self._draw()))

    def lookup(self, target: int, failed: Collection[int] = ()) -> tuple[Sequence[str], int]:
        """Look up ``target`` entries; return (the entries found, the number of servers queried).

        ``failed`` contains the indices of servers that do not answer. Failed servers count as queried.
        """
        lookup = PartialLookup(target, lookup_order(self.strategy, len(self.servers), self._draw()))
        asked = 0
        while (server := lookup.next_server()) is not None:
            asked += 1
            if server not in failed:
                lookup.on_answer(self.servers[server].lookup(lookup.missing, lookup.found, self._draw()))
        return list(lookup.found), asked


ENTRIES = 100
SERVERS = 10
STORAGE = 200
"""Number of entries stored on all servers together, in figures that do not vary it."""
TARGETS = 100
"""Maximum target, the number of entries that a lookup wants, in Figures 3 and 6."""
FAIR_TARGET = 35
"""The number of entries that a lookup wants (target t) in Figure 8."""

INSTANCES = 500
INSTANCES_PER_POINT = 60
"""Number of random placements per point in figures that vary the storage."""

COVERED_STORAGE = tuple(range(10, 201, 10))
FAIR_STORAGE = tuple(range(100, 1001, 50))


class StrategyCurve(msgspec.Struct, frozen=True):
    """A curve in a figure: the values of one strategy, one for each point on the horizontal axis.

    A value is None if the quantity is not defined at this point.
    """

    strategy: str
    values: tuple[float | None, ...]


class StorageResult(msgspec.Struct, frozen=True):
    """The row of Table 1 for one strategy.

    - ``storage`` is the total number of entries stored on all servers.
    - ``coverage`` is the number of distinct entries stored on all servers.
    - ``expected_storage`` and ``expected_coverage`` are the same quantities, computed by the paper's formulas.
    """

    strategy: str
    storage: float
    expected_storage: float
    coverage: float
    expected_coverage: float


class PlacementResults(msgspec.Struct, frozen=True):
    """The results of all placement experiments for one seed. Figures contain one curve per strategy.

    - ``lookup_costs`` (Figure 3) and ``fault_tolerances`` (Figure 6): a curve has one value for each number of wanted
      entries, beginning with 1.
    - ``coverages`` (Figure 5) and ``unfairness`` (Figure 8): a curve has one value for each total number of entries
      stored on all servers.
    """

    table_1: tuple[StorageResult, ...]
    lookup_costs: tuple[StrategyCurve, ...]
    coverages: tuple[StrategyCurve, ...]
    fault_tolerances: tuple[StrategyCurve, ...]
    unfairness: tuple[StrategyCurve, ...]


def strategies_for_storage(limit: int) -> tuple[Strategy, ...]:
    """Return the strategies Fixed-x, RandomServer-x, Round-Robin-y and Hash-y that store ``limit`` entries in total.

    x is the number of entries per server, and y the number of copies per entry. Both are rounded down, and are at least
    1.
    """
    # That agrees with the paper, which uses Hash-2 for a storage of 200 entries.
    x, y = max(limit // SERVERS, 1), max(limit // ENTRIES, 1)
    return Fixed(x), RandomServer(x), RoundRobin(y), Hash(y)


class PlacementSampler:
    """Draws random placements of a directory's entries."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._numbers = count()
        self._salt = int(rng.integers(1 << 32))
        """A part of all entries' names. It differs between seeds, so that hash functions place entries differently."""

    def draw(self, strategy: Strategy, instances: int, placed: int = ENTRIES) -> Iterator[Bools]:
        """Yield ``instances`` random placements made by ``strategy``, or a single one if the strategy is not random.

        Only the first ``placed`` entries are placed. This is for strategies that cannot store all ``ENTRIES`` entries.
        """
        for _ in range(instances if isinstance(strategy, RandomServer | Hash) else 1):
            number = next(self._numbers)
            entries = [f"{self._salt}/{number}/{entry}" for entry in range(ENTRIES)]
            servers = SimulatedDirectory(strategy, SERVERS, self._rng.random)
            servers.request(Place(tuple(entries[:placed])))
            yield placement(servers.shares, entries)


def run(rng: np.random.Generator) -> PlacementResults:
    """Measure all placements, and return the results for one seed."""
    placements = PlacementSampler(rng)
    drawn = {
        strategy_name(strategy): (strategy, list(placements.draw(strategy, INSTANCES)))
        for strategy in strategies_for_storage(STORAGE)
    }
    more: list[Strategy] = [FullReplication(), Fixed(5), RandomServer(5), RoundRobin(5), Hash(1), Hash(5)]
    stored = [*drawn.values(), *((strategy, list(placements.draw(strategy, INSTANCES_PER_POINT))) for strategy in more)]
    return PlacementResults(
        table_1=tuple(_stored(strategy, instances) for strategy, instances in stored),
        lookup_costs=tuple(StrategyCurve(name, _costs(strategy, found)) for name, (strategy, found) in drawn.items()),
        coverages=_coverages(placements),
        fault_tolerances=tuple(StrategyCurve(name, _tolerances(found)) for name, (_, found) in drawn.items()),
        unfairness=_unfairness(placements),
    )


def _stored(strategy: Strategy, instances: list[Bools]) -> StorageResult:
    return StorageResult(
        strategy_name(strategy),
        float(np.mean([storage(placed) for placed in instances])),
        expected_storage(strategy, ENTRIES, SERVERS),
        float(np.mean([coverage(placed) for placed in instances])),
        expected_coverage(strategy, ENTRIES, SERVERS),
    )


def _costs(strategy: Strategy, instances: list[Bools]) -> tuple[float | None, ...]:
    """Return, for 1 to ``TARGETS`` wanted entries, the mean number of servers that a lookup queries.

    ``instances`` contains random placements of entries. A mean is None if any placement has fewer entries than wanted.
    """
    costs = [lookup_costs(placed, lookup_steps(strategy, SERVERS)) for placed in instances]
    most = min(TARGETS, *(len(cost) - 1 for cost in costs))
    means = np.mean([cost[1 : most + 1] for cost in costs], axis=0)
    return (*map(float, means), *[None] * (TARGETS - most))


def _tolerances(instances: list[Bools]) -> tuple[float | None, ...]:
    means = np.mean([fault_tolerances(placed)[1 : TARGETS + 1] for placed in instances], axis=0)
    return tuple(float(mean) if mean >= 0 else None for mean in means)


def _by_storage(limits: Sequence[int], mean: Callable[[Strategy, int], float]) -> tuple[StrategyCurve, ...]:
    """Return one curve per strategy, with one value for each of ``limits``.

    A limit is the total number of entries that all servers may store. Each value is ``mean(strategy, limit)``, with the
    strategy's parameter chosen for this limit.
    """
    names = ("Fixed", "RandomServer", "Round-Robin", "Hash")
    means = [[mean(strategy, limit) for strategy in strategies_for_storage(limit)] for limit in limits]
    return tuple(StrategyCurve(name, values) for name, values in zip(names, zip(*means, strict=True), strict=True))


def _coverages(placements: PlacementSampler) -> tuple[StrategyCurve, ...]:
    """Return the curves of Figure 5: how many distinct entries the servers store together, on average.

    A curve has one value for each total number of stored entries, copies included. If this number is less than the
    number of all entries, Round-Robin-1 and Hash-1 store only some of the entries (§4.3).
    """

    def mean(strategy: Strategy, limit: int) -> float:
        most = min(limit, ENTRIES) if isinstance(strategy, RoundRobin | Hash) else ENTRIES
        instances = placements.draw(strategy, INSTANCES_PER_POINT, most)
        return float(np.mean([coverage(placed) for placed in instances]))

    return _by_storage(COVERED_STORAGE, mean)


def _unfairness(placements: PlacementSampler) -> tuple[StrategyCurve, ...]:
    def mean(strategy: Strategy, _limit: int) -> float:
        possible = lookup_steps(strategy, SERVERS)
        instances = placements.draw(strategy, INSTANCES_PER_POINT)
        chances = (retrieval_chances(placed, FAIR_TARGET, possible) for placed in instances)
        return float(np.mean([unfairness(chance, FAIR_TARGET) for chance in chances]))

    return _by_storage(FAIR_STORAGE, mean)
