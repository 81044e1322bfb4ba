"""The strategies that the product chooses for several directories, and the measured costs of these strategies."""

from collections.abc import Callable

import msgspec
import numpy as np

from service.discovery.partial_lookup.servers import Add, Delete, Place
from service.discovery.partial_lookup.strategies import (
    expected_lookup_cost,
    expected_overhead,
    expected_storage,
    strategy_name,
)
from service.discovery.partial_lookup.strategy_choice import DirectoryMeasurements, choose
from service.simulate.partial_lookup.placement_experiment import SimulatedDirectory

CASES = (
    DirectoryMeasurements(target=400, entries=500, servers=3, updates_per_lookup=0.0),
    DirectoryMeasurements(target=100, entries=2_000, servers=3, updates_per_lookup=0.01),
    DirectoryMeasurements(target=100, entries=5_000, servers=10, updates_per_lookup=0.01),
    DirectoryMeasurements(target=100, entries=20_000, servers=10, updates_per_lookup=0.01),
    DirectoryMeasurements(target=100, entries=500, servers=10, updates_per_lookup=0.5),
    DirectoryMeasurements(target=100, entries=5_000, servers=10, updates_per_lookup=0.5),
)
LOOKUPS = 300
UPDATES = 100


class ShippedDirectory(msgspec.Struct, frozen=True):
    """A simulated directory that uses the strategy that the product chooses for it by default.

    ``measured`` contains the properties of the directory on which the choice is based. These fields are measured in
    the simulation:

    - ``lookup_cost`` is the mean number of servers that a lookup queries.
    - ``storage`` is the total number of entries stored on all servers.
    - ``overhead`` is the mean number of messages per update.

    The fields ``expected_…`` contain the same quantities, computed by formulas.
    """

    measured: DirectoryMeasurements
    strategy: str
    lookup_cost: float
    expected_lookup_cost: float
    storage: float
    expected_storage: float
    overhead: float
    expected_overhead: float


def run_default_choices(seed: int, report: Callable[[str], None]) -> tuple[ShippedDirectory, ...]:
    """Simulate the directories in ``CASES``, and return the results.

    ``report`` is called once, after the last directory.
    """
    rng = np.random.default_rng(seed)
    found = tuple(_directory(case, rng) for case in CASES)
    report("as shipped")
    return found


def _directory(case: DirectoryMeasurements, rng: np.random.Generator) -> ShippedDirectory:
    strategy = choose(case).strategy
    servers = SimulatedDirectory(strategy, case.servers, rng.random)
    salt = int(rng.integers(1 << 32))
    servers.request(Place(tuple(f"{salt}/{number}" for number in range(case.entries))))
    storage = sum(map(len, servers.shares))
    asked = [servers.lookup(case.target)[1] for _ in range(LOOKUPS)]
    before = servers.processed
    for number, old in enumerate(rng.permutation(case.entries)[:UPDATES].tolist()):
        servers.request(Delete(f"{salt}/{old}"))
        servers.request(Add(f"{salt}/new {number}"))
    return ShippedDirectory(
        measured=case,
        strategy=strategy_name(strategy),
        lookup_cost=float(np.mean(asked)),
        expected_lookup_cost=expected_lookup_cost(strategy, case.target, case.entries, case.servers),
        storage=storage,
        expected_storage=expected_storage(strategy, case.entries, case.servers),
        overhead=(servers.processed - before) / (2 * UPDATES),
        expected_overhead=expected_overhead(strategy, case.entries, case.servers),
    )
