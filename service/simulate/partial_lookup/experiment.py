"""Experiment ``partial-lookup`` (Sun and Garcia-Molina, §4 and §6): 100 entries on 10 servers, five strategies.

Production's are the servers, their messages, the client's order of asking, the metrics, the formulas and the cushion.

Table 2 has the paper's stars, and stars by one rule from what was measured.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import ceil, log
from statistics import mean

import msgspec
import numpy as np

from service.discovery.partial.strategies import (
    Fixed,
    Hash,
    RandomServer,
    RoundRobin,
    copies_needed,
    cushion_needed,
    expected_storage,
)
from service.simulate.partial_lookup import static, updates
from service.simulate.partial_lookup.static import ENTRIES, SERVERS, STORAGE, Curve, Static, of_storage
from service.simulate.partial_lookup.updates import Updates, overhead

MANY_ENTRIES = 1000
SMALL_TARGET, LARGE_TARGET = 5, 40
"""Below and above h / n."""
ALIKE = 1.06
"""All strategies within this factor get all stars."""

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
"""Fixed-x, RandomServer-x, Round-Robin-y, Hash-y."""


class Column(msgspec.Struct, frozen=True):
    """A column of Table 2; strategies as in ``PAPER``."""

    name: str
    what: str
    """What was measured: less is better."""
    measured: tuple[float, ...]
    stars: tuple[int, ...]
    paper: tuple[int, ...]

    @property
    def contradicted(self) -> int:
        """How many pairs of strategies have more stars the one way here, and the other in the paper."""
        pairs = combinations(zip(self.stars, self.paper, strict=True), 2)
        return sum((our_a - our_b) * (paper_a - paper_b) < 0 for (our_a, paper_a), (our_b, paper_b) in pairs)


def stars(costs: Sequence[float]) -> tuple[int, ...]:
    """Return four stars for the least cost, one for the highest, and between them by the logarithm."""
    least, most = min(costs), max(costs)
    if most <= ALIKE * least:
        return (4,) * len(costs)
    return tuple(4 - round(3 * log(cost / least) / log(most / least)) for cost in costs)


def table_2(static: Static, updates: Updates, rng: np.random.Generator) -> tuple[Column, ...]:
    """Return all columns from one seed's figures."""
    grown = [expected_storage(strategy, MANY_ENTRIES, SERVERS) for strategy in of_storage(STORAGE)]
    measured: dict[str, tuple[str, Sequence[float]]] = {
        "storage, few entries": ("entries kept, h = 100", [stored.storage for stored in static.table_1[:4]]),
        "storage, many entries": ("entries kept, h = 1,000", grown),
        "coverage": ("h / coverage", [ENTRIES / stored.coverage for stored in static.table_1[:4]]),
        "fault tolerance": ("servers that must be left / least", _beyond(static.fault_tolerances, failing=True)),
        "fairness, few updates": ("1 + unfairness", _fairness(updates, 0)),
        "fairness, many updates": ("1 + unfairness", _fairness(updates, -1)),
        "lookup cost": ("servers asked / least", _beyond(static.lookup_costs, failing=False)),
        "update overhead, small target": ("messages per update, t = 5", _overheads(SMALL_TARGET, rng)),
        "update overhead, large target": ("messages per update, t = 40", _overheads(LARGE_TARGET, rng)),
    }
    return tuple(
        Column(name, what, tuple(map(float, costs)), stars(costs), PAPER[name])
        for name, (what, costs) in measured.items()
    )


def over_seeds(columns: Sequence[Column]) -> Column:
    """Return what one column comes to over all seeds."""
    costs = tuple(mean(costs) for costs in zip(*(column.measured for column in columns), strict=True))
    return Column(columns[0].name, columns[0].what, costs, stars(costs), columns[0].paper)


def _beyond(curves: Sequence[Curve], *, failing: bool) -> list[float]:
    """Return how many servers are needed, as a multiple of the least with shares as large; means over the targets."""
    return [
        mean(
            ((SERVERS - value) if failing else value) / ceil(target * SERVERS / STORAGE)
            for target, value in enumerate(curve.values, 1)
            if value is not None
        )
        for curve in curves
    ]


def _fairness(updates: Updates, place: int) -> list[float]:
    return [1 + (curve.values[place] or 0.0) for curve in updates.aged_unfairness]


def _overheads(target: int, rng: np.random.Generator) -> list[float]:
    x, y = target + cushion_needed(target, ENTRIES), copies_needed(target, ENTRIES, SERVERS)
    return [overhead(strategy, ENTRIES, rng) for strategy in (Fixed(x), RandomServer(x), RoundRobin(y), Hash(y))]


STEPS = 3


class Outcome(msgspec.Struct, frozen=True):
    """What ``coronet simulate partial-lookup --json`` prints."""

    experiment: str
    seed: int
    static: static.Static
    updates: updates.Updates
    table_2: tuple[Column, ...]


def run(seed: int, report: Callable[[str], None]) -> Outcome:
    """Run all figures with one seed; report after each part."""
    placing, updating, rating = np.random.default_rng(seed).spawn(3)
    placed = static.run(placing)
    report("placements")
    updated = updates.run(updating)
    report("updates")
    rated = table_2(placed, updated, rating)
    report("Table 2")
    return Outcome("partial-lookup", seed, placed, updated, rated)
