"""Placements without updates (§4): Table 1 and Figures 3, 5, 6 and 8, of the product's servers.

An *instance* is one placement of a directory's entries. Each has entries of its own names, so that hash functions put
them elsewhere; of an instance, the metrics are exact.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count

import msgspec
import numpy as np

from service.discovery.partial.placement_metrics import (
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
from service.discovery.partial.servers import (
    PartialLookup,
    Place,
    Request,
    SendToServer,
    choose_coordinator,
    lookup_order,
    make_server,
)
from service.discovery.partial.strategies import (
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


class Servers:
    """All servers of one directory, driven as the product drives its workers', and what that took."""

    def __init__(self, strategy: Strategy, servers: int, draw: Callable[[], float]) -> None:
        """Take random numbers in [0, 1) from ``draw``."""
        self.strategy = strategy
        self.servers = [make_server(strategy, me, servers) for me in range(servers)]
        self.processed = 0
        """Messages that servers have processed: clients' requests, and each server's part of a broadcast (§6.4)."""
        self._draw = draw

    @property
    def shares(self) -> list[Collection[str]]:
        """What each server keeps."""
        return [server.entries for server in self.servers]

    def request(self, request: Request) -> None:
        """Carry a client's request through."""
        entered = choose_coordinator(self.strategy, len(self.servers), self._draw())
        self.processed += 1
        under_way: deque[SendToServer] = deque(self.servers[entered].on_request(request))
        while under_way:
            sent = under_way.popleft()
            self.processed += 1
            under_way.extend(self.servers[sent.to].on_message(sent.message, self._draw()))

    def lookup(self, target: int, failed: Collection[int] = ()) -> tuple[Sequence[str], int]:
        """Return what a client finds, and how many servers it asked; those that failed do not answer."""
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
"""Entries that all servers may keep together, where a figure does not vary it."""
TARGETS = 50
"""Up to so many entries per lookup in Figures 3 and 6."""
FAIR_TARGET = 35
"""t of Figure 8."""

INSTANCES = 500
INSTANCES_PER_POINT = 60
"""Of figures that vary the storage."""

COVERED_STORAGE = tuple(range(10, 201, 10))
FAIR_STORAGE = tuple(range(100, 1001, 50))


class Curve(msgspec.Struct, frozen=True):
    """What one strategy does along a figure's axis; None where it cannot."""

    strategy: str
    values: tuple[float | None, ...]


class Stored(msgspec.Struct, frozen=True):
    """A line of Table 1: entries kept by all servers together, or entries that can be had of them."""

    strategy: str
    storage: float
    expected_storage: float
    coverage: float
    expected_coverage: float


class Static(msgspec.Struct, frozen=True):
    """Of one seed. Figures 3 and 6 are by target from 1, Figures 5 and 8 by storage."""

    table_1: tuple[Stored, ...]
    lookup_costs: tuple[Curve, ...]
    coverages: tuple[Curve, ...]
    fault_tolerances: tuple[Curve, ...]
    unfairness: tuple[Curve, ...]


def of_storage(limit: int, entries: int = ENTRIES, servers: int = SERVERS) -> tuple[Strategy, ...]:
    """Return Fixed-x, RandomServer-x, Round-Robin-y and Hash-y for so much storage.

    Both parameters are rounded down, y to at least 1, as where the paper makes Hash-2 of 200 entries.
    """
    x, y = max(limit // servers, 1), max(limit // entries, 1)
    return Fixed(x), RandomServer(x), RoundRobin(y), Hash(y)


class Placements:
    """Draws instances."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._numbers = count()

    def draw(self, strategy: Strategy, instances: int, placed: int = ENTRIES) -> Iterator[Bools]:
        """Yield placements of the first ``placed`` of ``ENTRIES`` entries: what there is storage for."""
        for _ in range(instances if isinstance(strategy, RandomServer | Hash) else 1):
            number = next(self._numbers)
            entries = [f"{number}/{entry}" for entry in range(ENTRIES)]
            servers = Servers(strategy, SERVERS, self._rng.random)
            servers.request(Place(tuple(entries[:placed])))
            yield placement(servers.shares, entries)


def run(rng: np.random.Generator) -> Static:
    """Return one seed's figures."""
    placements = Placements(rng)
    drawn = {
        strategy_name(strategy): (strategy, list(placements.draw(strategy, INSTANCES)))
        for strategy in of_storage(STORAGE)
    }
    more: list[Strategy] = [FullReplication(), Fixed(5), RandomServer(5), RoundRobin(5), Hash(1), Hash(5)]
    stored = [*drawn.values(), *((strategy, list(placements.draw(strategy, INSTANCES_PER_POINT))) for strategy in more)]
    return Static(
        table_1=tuple(_stored(strategy, instances) for strategy, instances in stored),
        lookup_costs=tuple(Curve(name, _costs(strategy, found)) for name, (strategy, found) in drawn.items()),
        coverages=_coverages(placements),
        fault_tolerances=tuple(Curve(name, _tolerances(found)) for name, (_, found) in drawn.items()),
        unfairness=_unfairness(placements),
    )


def _stored(strategy: Strategy, instances: list[Bools]) -> Stored:
    return Stored(
        strategy_name(strategy),
        float(np.mean([storage(placed) for placed in instances])),
        expected_storage(strategy, ENTRIES, SERVERS),
        float(np.mean([coverage(placed) for placed in instances])),
        expected_coverage(strategy, ENTRIES, SERVERS),
    )


def _costs(strategy: Strategy, instances: list[Bools]) -> tuple[float | None, ...]:
    """Return the mean cost of targets from 1 on, as far as all instances have as many entries."""
    costs = [lookup_costs(placed, lookup_steps(strategy, SERVERS)) for placed in instances]
    most = min(TARGETS, *(len(cost) - 1 for cost in costs))
    means = np.mean([cost[1 : most + 1] for cost in costs], axis=0)
    return (*map(float, means), *[None] * (TARGETS - most))


def _tolerances(instances: list[Bools]) -> tuple[float | None, ...]:
    means = np.mean([fault_tolerances(placed)[1 : TARGETS + 1] for placed in instances], axis=0)
    return tuple(float(mean) if mean >= 0 else None for mean in means)


def _by_storage(limits: Sequence[int], mean: Callable[[Strategy, int], float]) -> tuple[Curve, ...]:
    """Return a curve along the storage for each strategy."""
    names = ("Fixed", "RandomServer", "Round-Robin", "Hash")
    means = [[mean(strategy, limit) for strategy in of_storage(limit)] for limit in limits]
    return tuple(Curve(name, values) for name, values in zip(names, zip(*means, strict=True), strict=True))


def _coverages(placements: Placements) -> tuple[Curve, ...]:
    """Return Figure 5; with less storage than entries, Round-Robin-1 and Hash-1 have a part of them (§4.3)."""

    def mean(strategy: Strategy, limit: int) -> float:
        most = min(limit, ENTRIES) if isinstance(strategy, RoundRobin | Hash) else ENTRIES
        instances = placements.draw(strategy, INSTANCES_PER_POINT, most)
        return float(np.mean([coverage(placed) for placed in instances]))

    return _by_storage(COVERED_STORAGE, mean)


def _unfairness(placements: Placements) -> tuple[Curve, ...]:
    def mean(strategy: Strategy, _limit: int) -> float:
        possible = lookup_steps(strategy, SERVERS)
        instances = placements.draw(strategy, INSTANCES_PER_POINT)
        chances = (retrieval_chances(placed, FAIR_TARGET, possible) for placed in instances)
        return float(np.mean([unfairness(chance, FAIR_TARGET) for chance in chances]))

    return _by_storage(FAIR_STORAGE, mean)
