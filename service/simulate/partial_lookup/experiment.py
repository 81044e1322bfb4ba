"""One run of the experiment ``partial-lookup``: 100 entries on 10 servers with five strategies (§4 and §6).

The servers, their messages, the order in which clients query servers, the metrics and the formulas are production code.
The paper's Table 2 rates each strategy with one to four stars for each metric. The report compares these stars with
those that :func:`rate` computes from the measurements.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import ceil, log
from statistics import mean

import msgspec
import numpy as np

from service.discovery.partial_lookup.strategies import (
    Fixed,
    Hash,
    RandomServer,
    RoundRobin,
    copies_needed,
    cushion_needed,
    expected_storage,
)
from service.simulate.partial_lookup import placement_experiment, update_experiment
from service.simulate.partial_lookup.placement_experiment import (
    ENTRIES,
    SERVERS,
    STORAGE,
    PlacementResults,
    StrategyCurve,
    strategies_for_storage,
)
from service.simulate.partial_lookup.update_experiment import UpdateResults, messages_per_update

MANY_ENTRIES = 1000
RATED_TARGETS = 50
"""Maximum target, the number of entries that a lookup wants, for which lookup cost and fault tolerance are rated."""
SMALL_TARGET, LARGE_TARGET = 5, 40
"""Numbers of entries that a lookup wants: one below and one above h/n, with h entries and n servers."""
EQUAL_WITHIN = 1.06
"""If the highest cost is at most this many times the lowest cost, all strategies get four stars."""

PAPER: Mapping[str, tuple[int, int, int, int]] = {
    "storage, few entries": (4, 4, 4, 4),
    "storage, many entries": (4, 4, 2, 2),
    "coverage": (1, 3, 4, 4),
    "fault tolerance": (4, 3, 3, 2),
    "fairness, few updates": (1, 3, 4, 3),
    "fairness, many updates": (1, 1, 3, 3),
    "lookup cost": (4, 3, 4, 2),
    "update overhead, small target": (3, 2, 1, 3),
    "update overhead, large target": (2, 2, 1, 4),
}
"""The paper's stars for Fixed-x, RandomServer-x, Round-Robin-y and Hash-y, by column of Table 2."""


class RatingColumn(msgspec.Struct, frozen=True):
    """A column of Table 2: one metric, for which each strategy is rated with one to four stars.

    - ``measured`` contains the measurement of each strategy, in the order of ``PAPER``.
    - ``stars`` contains the ratings that :func:`rate` computes from the measurements.
    - ``paper`` contains the paper's ratings.
    """

    name: str
    what: str
    """The measured quantity; lower is better."""
    measured: tuple[float, ...]
    stars: tuple[int, ...]
    paper: tuple[int, ...]

    @property
    def distant(self) -> int:
        """The number of strategies for which the computed rating differs from the paper's by more than one star."""
        return sum(abs(our - paper) > 1 for our, paper in zip(self.stars, self.paper, strict=True))

    @property
    def contradicted(self) -> int:
        """The number of pairs of strategies that the computed stars and the paper's stars rank in opposite order."""
        pairs = combinations(zip(self.stars, self.paper, strict=True), 2)
        return sum((our_a - our_b) * (paper_a - paper_b) < 0 for (our_a, paper_a), (our_b, paper_b) in pairs)


def rate(costs: Sequence[float]) -> tuple[int, ...]:
    """Rate each of ``costs`` with one to four stars: four for the lowest cost, one for the highest.

    Costs in between are rated on a logarithmic scale. If the highest cost is at most 6 % above the lowest, all get four
    stars.
    """
    least, most = min(costs), max(costs)
    if most <= EQUAL_WITHIN * least:
        return (4,) * len(costs)
    return tuple(4 - round(3 * log(cost / least) / log(most / least)) for cost in costs)


def rating_columns(
    static: PlacementResults, updates: UpdateResults, rng: np.random.Generator
) -> tuple[RatingColumn, ...]:
    """Return all columns of Table 2 for one seed.

    ``static`` and ``updates`` contain the measurements made with this seed.
    """
    grown = [expected_storage(strategy, MANY_ENTRIES, SERVERS) for strategy in strategies_for_storage(STORAGE)]
    measured: dict[str, tuple[str, Sequence[float]]] = {
        "storage, few entries": ("entries stored, h = 100", [stored.storage for stored in static.table_1[:4]]),
        "storage, many entries": ("entries stored, h = 1,000", grown),
        "coverage": ("h / coverage", [ENTRIES / stored.coverage for stored in static.table_1[:4]]),
        "fault tolerance": (
            "servers that must remain / minimum",
            _relative_costs(static.fault_tolerances, failing=True),
        ),
        "fairness, few updates": ("1 + unfairness", _fairness(updates, 0)),
        "fairness, many updates": ("1 + unfairness", _fairness(updates, -1)),
        "lookup cost": ("servers queried / minimum", _relative_costs(static.lookup_costs, failing=False)),
        "update overhead, small target": ("messages per update, t = 5", _overheads(SMALL_TARGET, rng)),
        "update overhead, large target": ("messages per update, t = 40", _overheads(LARGE_TARGET, rng)),
    }
    return tuple(
        RatingColumn(name, what, tuple(map(float, costs)), rate(costs), PAPER[name])
        for name, (what, costs) in measured.items()
    )


def average_over_seeds(columns: Sequence[RatingColumn]) -> RatingColumn:
    """Average one column of Table 2 over several seeds. ``columns`` contains the column for each seed.

    The stars are computed from the mean measurements.
    """
    costs = tuple(mean(costs) for costs in zip(*(column.measured for column in columns), strict=True))
    return RatingColumn(columns[0].name, columns[0].what, costs, rate(costs), columns[0].paper)


def _relative_costs(curves: Sequence[StrategyCurve], *, failing: bool) -> list[float]:
    """Return, for each strategy, how many servers a lookup needs, divided by the minimum.

    The minimum is the number of servers that a lookup would need if the entries were divided among servers equally
    and without overlap. The result is averaged over lookups for 1 to ``RATED_TARGETS`` entries.

    - ``curves`` contains one curve per strategy, with one value for each number of entries that a lookup wants.
    - ``failing`` determines what the values are. If it is false, a value is the number of servers that a lookup
      queries. If it is true, a value is the number of servers that may fail; a lookup then needs all other servers.
    """
    return [
        mean(
            ((SERVERS - value) if failing else value) / ceil(target * SERVERS / STORAGE)
            for target, value in enumerate(curve.values[:RATED_TARGETS], 1)
            if value is not None
        )
        for curve in curves
    ]


def _fairness(updates: UpdateResults, place: int) -> list[float]:
    return [1 + (curve.values[place] or 0.0) for curve in updates.aged_unfairness]


def _overheads(target: int, rng: np.random.Generator) -> list[float]:
    x, y = target + cushion_needed(target, ENTRIES), copies_needed(target, ENTRIES, SERVERS)
    return [
        messages_per_update(strategy, ENTRIES, rng) for strategy in (Fixed(x), RandomServer(x), RoundRobin(y), Hash(y))
    ]


STEPS = 3


class PartialLookupOutcome(msgspec.Struct, frozen=True):
    """The results of one run; the output of ``coronet simulate partial-lookup --json``."""

    experiment: str
    seed: int
    static: PlacementResults
    updates: UpdateResults
    table_2: tuple[RatingColumn, ...]


def run(seed: int, report: Callable[[str], None]) -> PartialLookupOutcome:
    """Run all measurements with one seed, and return the results.

    ``report`` is called with a short text after each part of the run.
    """
    placement_rng, update_rng, rating_rng = np.random.default_rng(seed).spawn(3)
    placed = placement_experiment.run(placement_rng)
    report("placements")
    updated = update_experiment.run(update_rng)
    report("updates")
    rated = rating_columns(placed, updated, rating_rng)
    report("Table 2")
    return PartialLookupOutcome("partial-lookup", seed, placed, updated, rated)
