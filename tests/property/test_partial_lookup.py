"""Invariants of partial lookup: five strategies, any updates and failed servers; and metrics, by enumeration."""

from collections.abc import Callable
from itertools import combinations, permutations
from math import ceil

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.discovery.partial_lookup.lookup_client import lookup_order
from service.discovery.partial_lookup.placement_metrics import (
    coverage,
    fault_tolerances,
    lookup_costs,
    lookup_steps,
    placement,
    retrieval_chances,
    storage,
    unfairness,
)
from service.discovery.partial_lookup.servers import Add, Delete, Place, Request
from service.discovery.partial_lookup.strategies import (
    FAILING,
    Fixed,
    FullReplication,
    Hash,
    RandomServer,
    RoundRobin,
    Strategy,
    cushion_needed,
    expected_coverage,
    expected_lookup_cost,
    expected_storage,
    failing_share,
    round_robin_tolerance,
)
from service.discovery.partial_lookup.strategy_choice import DirectoryMeasurements, StrategyChoice, choose
from service.simulate.partial_lookup.placement_experiment import SimulatedDirectory

COUNTS = st.integers(1, 12)
STRATEGIES: st.SearchStrategy[Strategy] = st.one_of(
    st.just(FullReplication()),
    st.builds(Fixed, COUNTS),
    st.builds(RandomServer, COUNTS),
    st.builds(RoundRobin, COUNTS),
    st.builds(Hash, COUNTS),
)
SEEDS = st.integers(0, 2**32 - 1)
ENTRIES = [f"entry {number}" for number in range(30)]


def random_numbers(seed: int) -> Callable[[], float]:
    return np.random.default_rng(seed).random


@st.composite
def servers_after_updates(
    draw: st.DrawFn, most_servers: int = 6, strategies: st.SearchStrategy[Strategy] = STRATEGIES
) -> tuple[SimulatedDirectory, set[str]]:
    """Return servers after a placement and valid adds and deletes, and the entries of the directory."""
    servers = SimulatedDirectory(draw(strategies), draw(st.integers(1, most_servers)), random_numbers(draw(SEEDS)))
    placed = draw(st.lists(st.sampled_from(ENTRIES), unique=True))
    servers.request(Place(tuple(placed)))
    there = set(placed)
    for entry in draw(st.lists(st.sampled_from(ENTRIES), max_size=60)):
        servers.request(Delete(entry) if entry in there else Add(entry))
        there ^= {entry}
    return servers, there


@given(servers_after_updates(), st.integers(0, 35), st.sets(st.integers(0, 5)))
def test_a_lookup_reaches_its_target_if_the_remaining_servers_cover_it(
    after: tuple[SimulatedDirectory, set[str]], target: int, failed: set[int]
) -> None:
    """It returns no more than the target, each entry once, and no deleted ones."""
    servers, there = after
    found, _asked = servers.lookup(target, failed)
    left: set[str] = set().union(*(share for number, share in enumerate(servers.shares) if number not in failed))
    assert len(found) == len(set(found)) == min(target, len(left))
    assert set(found) <= left <= there


@given(servers_after_updates())
def test_full_coverage_strategies_store_all_entries(after: tuple[SimulatedDirectory, set[str]]) -> None:
    servers, there = after
    if isinstance(servers.strategy, FullReplication | RoundRobin | Hash):
        assert set().union(*servers.shares) == there


@given(servers_after_updates(strategies=st.builds(RoundRobin, COUNTS)))
def test_round_robin_stays_even_and_each_entry_has_its_copies(after: tuple[SimulatedDirectory, set[str]]) -> None:
    servers, there = after
    assert isinstance(servers.strategy, RoundRobin)
    sizes = [len(share) for share in servers.shares]
    copies = min(servers.strategy.y, len(sizes))
    assert sum(sizes) == copies * len(there)
    assert max(sizes) - min(sizes) <= copies
    assert all(sum(entry in share for share in servers.shares) == copies for entry in there)


@given(servers_after_updates())
def test_no_server_keeps_more_than_its_share(after: tuple[SimulatedDirectory, set[str]]) -> None:
    servers, _ = after
    if isinstance(servers.strategy, Fixed | RandomServer):
        assert all(len(share) <= servers.strategy.x for share in servers.shares)
    if isinstance(servers.strategy, Fixed | FullReplication):
        assert len({frozenset(share) for share in servers.shares}) == 1


@given(STRATEGIES, SEEDS, st.lists(st.tuples(st.booleans(), st.sampled_from(ENTRIES[:6])), max_size=40))
def test_deleted_entries_are_never_returned(strategy: Strategy, seed: int, updates: list[tuple[bool, str]]) -> None:
    servers = SimulatedDirectory(strategy, 4, random_numbers(seed))
    there: set[str] = set()
    for adds, entry in updates:
        request: Request = Add(entry) if adds else Delete(entry)
        servers.request(request)
        there = there | {entry} if adds else there - {entry}
        found, _ = servers.lookup(30)
        assert set(found) <= there
        if isinstance(strategy, FullReplication | RoundRobin | Hash):
            assert set(found) == there


@given(STRATEGIES, st.integers(1, 8), st.integers(0, 30), SEEDS)
def test_storage_and_coverage_match_the_formulas(strategy: Strategy, count: int, entries: int, seed: int) -> None:
    """Exactly, for formulas that are not means; those are compared in the experiment."""
    servers = SimulatedDirectory(strategy, count, random_numbers(seed))
    servers.request(Place(tuple(ENTRIES[:entries])))
    placed = placement(servers.shares, ENTRIES[:entries])
    if not isinstance(strategy, Hash):
        assert storage(placed) == expected_storage(strategy, entries, count)
    if not isinstance(strategy, RandomServer):
        assert coverage(placed) == expected_coverage(strategy, entries, count)


@given(STRATEGIES, st.integers(1, 9), st.floats(0, 1, exclude_max=True))
def test_the_lookup_order_contains_every_server_once(strategy: Strategy, count: int, draw: float) -> None:
    assert sorted(lookup_order(strategy, count, draw)) == list(range(count))


@given(servers_after_updates(most_servers=4), st.integers(1, 20))
def test_metrics_match_an_enumeration_of_all_lookups(after: tuple[SimulatedDirectory, set[str]], target: int) -> None:
    servers, there = after
    assume(there)
    entries, count = sorted(there), len(servers.servers)
    placed = placement(servers.shares, entries)
    orders = [list(order) for order in permutations(range(count))]
    if isinstance(servers.strategy, RoundRobin):
        orders = [lookup_order(servers.strategy, count, (begin + 0.5) / count) for begin in range(count)]
    chances, costs = np.zeros(len(entries)), []
    for order in orders:
        known, asked = np.zeros(len(entries), dtype=bool), 0
        for server in order:
            missing = target - known.sum()
            if missing <= 0:
                break
            fresh = placed[server] & ~known
            chances += fresh * min(1, missing / max(fresh.sum(), 1)) / len(orders)
            known, asked = known | fresh, asked + 1
        costs.append(asked)
    possible = lookup_steps(servers.strategy, count)
    assert np.allclose(retrieval_chances(placed, target, possible), chances)
    if target <= coverage(placed):
        assert lookup_costs(placed, possible)[target] == pytest.approx(np.mean(costs))


@pytest.mark.parametrize("strategy", [Hash(2), RandomServer(20), RoundRobin(2), Fixed(20), FullReplication()])
@pytest.mark.parametrize("target", [15, 25, 35, 50])
def test_the_expected_lookup_cost_matches_simulated_placements(strategy: Strategy, target: int) -> None:
    entries = [f"entry {number}" for number in range(100)]
    costs = []
    for seed in range(1 if isinstance(strategy, RoundRobin | FullReplication | Fixed) else 20):
        servers = SimulatedDirectory(strategy, 10, random_numbers(seed))
        servers.request(Place(tuple(f"{seed} {entry}" for entry in entries)))
        placed = placement(servers.shares, [f"{seed} {entry}" for entry in entries])
        curve = lookup_costs(placed, lookup_steps(strategy, 10))
        costs.append(curve[target] if target < len(curve) else 10)
    assert expected_lookup_cost(strategy, target, 100, 10) == pytest.approx(np.mean(costs), rel=0.05)


def test_the_expected_lookup_cost_matches_the_papers_example() -> None:
    """Figure 3: lookups of 15 of 100 entries, which are on 10 servers by Hash-2, ask 1.124 servers."""
    assert expected_lookup_cost(Hash(2), 15, 100, 10) == pytest.approx(1.124, abs=0.01)


@given(servers_after_updates(most_servers=5))
def test_fault_tolerance_is_exact(after: tuple[SimulatedDirectory, set[str]]) -> None:
    servers, there = after
    placed = placement(servers.shares, sorted(there))
    count, tolerances = len(servers.servers), fault_tolerances(placed)
    for target in range(1, len(there) + 1):
        tolerated = -1
        for failures in range(count):
            worst = min(
                int(placed[[server for server in range(count) if server not in failed]].any(axis=0).sum())
                for failed in combinations(range(count), failures)
            )
            tolerated = failures if worst >= target else tolerated
        assert tolerances[target] == tolerated


@given(st.integers(1, 10), st.integers(1, 10), st.integers(1, 4))
def test_round_robin_tolerance_matches_the_formula(count: int, copies: int, rounds: int) -> None:
    """For numbers of entries divisible by the number of servers: the formula does not round shares."""
    assume(copies <= count)
    entries = [f"entry {number}" for number in range(count * rounds)]
    servers = SimulatedDirectory(RoundRobin(copies), count, random_numbers(1))
    servers.request(Place(tuple(entries)))
    tolerances = fault_tolerances(placement(servers.shares, entries))
    for target in range(1, len(entries) + 1):
        assert tolerances[target] == round_robin_tolerance(copies, target, len(entries), count)


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 30))
def test_round_robin_and_full_replication_are_fair(count: int, rounds: int, target: int) -> None:
    entries = ENTRIES[: count * rounds] if count * rounds <= len(ENTRIES) else ENTRIES[:count]
    assume(target <= len(entries))
    for strategy in (RoundRobin(2), FullReplication()):
        servers = SimulatedDirectory(strategy, count, random_numbers(3))
        servers.request(Place(tuple(entries)))
        chances = retrieval_chances(placement(servers.shares, entries), target, lookup_steps(strategy, count))
        assert unfairness(chances, target) == pytest.approx(0, abs=1e-9)


def test_unfairness_matches_the_papers_examples() -> None:
    """Fixed-1 of two entries is 1; RandomServer-1 on two servers is 1 or 0, by instance (Figure 7)."""
    random_order = lookup_steps(RandomServer(1), 2)
    for rows, expected in (([[1, 0], [1, 0]], 1.0), ([[1, 0], [0, 1]], 0.0), ([[0, 1], [0, 1]], 1.0)):
        assert unfairness(retrieval_chances(np.array(rows, dtype=bool), 1, random_order), 1) == expected


@given(SEEDS, st.integers(1, 10))
def test_a_server_returns_all_entries_equally_often(seed: int, target: int) -> None:
    """Over all random numbers, each of its entries is returned equally often."""
    servers = SimulatedDirectory(Fixed(10), 2, random_numbers(seed))
    servers.request(Place(tuple(ENTRIES[:10])))
    answers = [servers.servers[0].lookup(target, (), (place + 0.5) / 10) for place in range(10)]
    assert {sum(entry in answer for answer in answers) for entry in ENTRIES[:10]} == {target}


@given(st.integers(1, 60), st.integers(1, 400))
def test_the_cushion_is_minimal(target: int, entries: int) -> None:
    assume(target <= entries)
    cushion = cushion_needed(target, entries)
    assert failing_share(target, cushion, entries) <= FAILING or target + cushion == entries
    assert cushion == 0 or failing_share(target, cushion - 1, entries) > FAILING


@given(
    st.builds(
        DirectoryMeasurements,
        target=st.integers(1, 500),
        entries=st.integers(0, 10**7),
        servers=st.integers(1, 200),
        updates_per_lookup=st.floats(0, 1e6),
    )
)
def test_the_chosen_strategy_gives_an_average_server_the_target(measured: DirectoryMeasurements) -> None:
    choice: StrategyChoice = choose(measured)
    kept = expected_storage(choice.strategy, max(measured.entries, 1), measured.servers) / measured.servers
    if not isinstance(choice.strategy, Hash):
        assert kept >= min(measured.target, measured.entries)
    assert choice.reasons
    if isinstance(choice.strategy, Hash):
        assert choice.strategy.y == ceil(measured.target * measured.servers / measured.entries)
