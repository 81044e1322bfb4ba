"""Simulated adds and deletes in a steady state (§6), for Figures 9, 10 and 11. The servers are production code.

Entries are added at random times (a Poisson process), every 10 time units on average. The lifetime of an entry is drawn
when it is added. If the mean lifetime is 10·h time units, there are h entries on average. The simulation begins with h
entries, whose remaining lifetimes are drawn at the start.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from math import log

import msgspec
import numpy as np

from service.discovery.partial_lookup.placement_metrics import (
    Floats,
    lookup_steps,
    placement,
    retrieval_chances,
    unfairness,
)
from service.discovery.partial_lookup.servers import Add, Delete, Place
from service.discovery.partial_lookup.strategies import (
    Fixed,
    Hash,
    Strategy,
    copies_needed,
    expected_overhead,
    failing_share,
    strategy_name,
)
from service.simulate.partial_lookup.placement_experiment import (
    ENTRIES,
    SERVERS,
    STORAGE,
    SimulatedDirectory,
    StrategyCurve,
    strategies_for_storage,
)

BETWEEN_ADDS = 10.0
"""Mean time units between two adds."""

CUSHIONED_TARGET = 15
CUSHIONS = tuple(range(8))
CUSHIONED_TIME = 300_000.0
"""Simulated duration in time units of each run of Figure 9, in which servers have a cushion of additional entries."""

AGED_TARGET = 15
AGED_UPDATES = tuple(range(0, 2001, 100))
AGED_INSTANCES = 20

UPDATED_TARGET = 40
UPDATED_X = 50
UPDATES = 3000
BREAKS = (134, 200, 400)
"""Numbers of entries at which the paper's y, the number of copies per entry, decreases by one (Figure 11)."""
UPDATED_ENTRIES = tuple(sorted({*range(100, 601, 20), *BREAKS, *(entries - 1 for entries in BREAKS)}))


class Lifetimes(StrEnum):
    """The distribution of entries' lifetimes."""

    EXPONENTIAL = "exponential"
    ZIPF = "Zipf-like"
    """The density is proportional to 1/lifetime from 1 to a maximum, which results from the mean. The paper states no
    density."""


class UpdateResults(msgspec.Struct, frozen=True):
    """The results of all update experiments for one seed."""

    failing: tuple[StrategyCurve, ...]
    """Figure 9: the fraction of the time during which a server has fewer than the 15 entries that a lookup wants. The
    strategy is Fixed-x, where x is 15 plus a cushion. There is one curve per distribution of lifetimes, with one value
    per cushion."""
    failing_expected: tuple[float, ...]
    """The values of ``failing`` according to Coronet's formula, which is independent of lifetimes; one per cushion."""
    failing_twice_expected: float
    """The value of ``failing`` according to Coronet's formula for a cushion of 2 and twice as many entries."""
    aged_unfairness: tuple[StrategyCurve, ...]
    """Figure 10: unfairness, with one curve per strategy and one value per number of updates."""
    overheads: tuple[StrategyCurve, ...]
    """Figure 11: messages per update, with one curve per strategy and one value per mean number of entries."""
    overheads_expected: tuple[StrategyCurve, ...]


def draw_updates(
    entries: int, time: float, lifetimes: Lifetimes, rng: np.random.Generator
) -> tuple[list[str], Iterator[tuple[float, Add | Delete]]]:
    """Draw a random sequence of updates; return (names of the initial entries, iterator over the updates).

    The iterator yields pairs (time, add or delete) in chronological order, and ends at ``time``. ``entries`` is both
    the initial and the mean number of entries.
    """
    mean = BETWEEN_ADDS * entries
    adds = np.cumsum(rng.exponential(BETWEEN_ADDS, round(1.1 * time / BETWEEN_ADDS) + 100))
    adds = adds[adds < time]
    first = rng.permutation(_residual_lifetimes(lifetimes, mean, entries, rng))
    ends = np.concatenate((first, adds + _draw_lifetimes(lifetimes, mean, len(adds), rng)))
    when = np.concatenate((adds, ends))
    order = np.argsort(when, kind="stable")

    def updates() -> Iterator[tuple[float, Add | Delete]]:
        for place in order[: np.searchsorted(when[order], time)].tolist():
            added = place < len(adds)
            name = f"e{place + entries if added else place - len(adds)}"
            yield float(when[place]), Add(name) if added else Delete(name)

    return [f"e{number}" for number in range(entries)], updates()


def longest_lifetime(mean: float) -> float:
    """Return the number m such that the distribution on [1, m] with density proportional to 1/t has the given mean.

    The mean is (m - 1) / ln m.
    """
    found = mean
    for _ in range(60):
        found = 1 + mean * log(found)
    return found


def _draw_lifetimes(lifetimes: Lifetimes, mean: float, count: int, rng: np.random.Generator) -> Floats:
    if lifetimes is Lifetimes.EXPONENTIAL:
        return rng.exponential(mean, count)
    return longest_lifetime(mean) ** rng.random(count)


def _residual_lifetimes(lifetimes: Lifetimes, mean: float, count: int, rng: np.random.Generator) -> Floats:
    """Draw the remaining lifetimes of the ``count`` entries that are present at the beginning.

    ``lifetimes`` is the distribution from which the lifetimes of all entries are drawn, and ``mean`` is its mean.
    """
    # Among the entries that are present at a given time, long lifetimes are more frequent. If the lifetimes of all
    # entries are Zipf-like, those of the present entries are therefore uniformly distributed.
    if lifetimes is Lifetimes.EXPONENTIAL:
        return rng.exponential(mean, count)
    return rng.random(count) * (1 + rng.random(count) * (longest_lifetime(mean) - 1))


def run(rng: np.random.Generator) -> UpdateResults:
    """Run all update experiments, and return the results for one seed."""

    def curves(cost: Callable[[Strategy, int], float]) -> tuple[StrategyCurve, ...]:
        fixed = Fixed(UPDATED_X)
        return (
            StrategyCurve(strategy_name(fixed), tuple(cost(fixed, entries) for entries in UPDATED_ENTRIES)),
            StrategyCurve("Hash", tuple(cost(_hash(entries), entries) for entries in UPDATED_ENTRIES)),
        )

    return UpdateResults(
        failing=tuple(
            StrategyCurve(kind.value, tuple(_share_of_failing_time(cushion, kind, rng) for cushion in CUSHIONS))
            for kind in Lifetimes
        ),
        failing_expected=tuple(failing_share(CUSHIONED_TARGET, cushion, ENTRIES) for cushion in CUSHIONS),
        failing_twice_expected=failing_share(CUSHIONED_TARGET, 2, 2 * ENTRIES),
        aged_unfairness=tuple(
            StrategyCurve(strategy_name(strategy), _unfairness_after_updates(strategy, rng))
            for strategy in strategies_for_storage(STORAGE)
        ),
        overheads=curves(lambda strategy, entries: messages_per_update(strategy, entries, rng)),
        overheads_expected=curves(lambda strategy, entries: expected_overhead(strategy, entries, SERVERS)),
    )


def _hash(entries: int) -> Hash:
    return Hash(copies_needed(UPDATED_TARGET, entries, SERVERS))


def _share_of_failing_time(cushion: int, lifetimes: Lifetimes, rng: np.random.Generator) -> float:
    """Return the fraction of the time during which lookups fail because servers have too few entries.

    All servers have the same entries. A lookup wants ``CUSHIONED_TARGET`` entries. At the start, each server has
    ``cushion`` entries more than a lookup wants. Deletes can reduce the number of entries.
    """
    # The strategy is Fixed-(t + cushion), with t = CUSHIONED_TARGET.
    servers = SimulatedDirectory(Fixed(CUSHIONED_TARGET + cushion), SERVERS, rng.random)
    first, updates = draw_updates(ENTRIES, CUSHIONED_TIME, lifetimes, rng)
    servers.request(Place(tuple(first)))
    failing, before = 0.0, 0.0
    for at, update in updates:
        if len(servers.servers[0].entries) < CUSHIONED_TARGET:
            failing += at - before
        before = at
        servers.request(update)
    return failing / CUSHIONED_TIME


def _unfairness_after_updates(strategy: Strategy, rng: np.random.Generator) -> tuple[float, ...]:
    """Return the unfairness of lookups after each number of updates in ``AGED_UPDATES`` (Figure 10).

    Unfairness is how much the entries differ in their chance of being returned by a lookup; 0 means not at all.
    Each value is the mean over ``AGED_INSTANCES`` random sequences of updates.
    """
    results = np.zeros((AGED_INSTANCES, len(AGED_UPDATES)))
    for instance in range(AGED_INSTANCES):
        servers = SimulatedDirectory(strategy, SERVERS, rng.random)
        first, updates = draw_updates(ENTRIES, BETWEEN_ADDS * AGED_UPDATES[-1], Lifetimes.EXPONENTIAL, rng)
        present = dict.fromkeys(first)
        servers.request(Place(tuple(first)))
        number = 0
        for column, until in enumerate(AGED_UPDATES):
            for _ in range(until - number):
                _, update = next(updates)
                servers.request(update)
                if isinstance(update, Add):
                    present[update.entry] = None
                else:
                    del present[update.entry]
            number = until
            placed = placement(servers.shares, list(present))
            results[instance, column] = unfairness(
                retrieval_chances(placed, AGED_TARGET, lookup_steps(strategy, SERVERS)), AGED_TARGET
            )
    return tuple(results.mean(axis=0).tolist())


def messages_per_update(strategy: Strategy, entries: int, rng: np.random.Generator) -> float:
    """Return the mean number of messages that one update causes, counted over all servers (Figure 11).

    An update adds or deletes an entry. ``entries`` is the mean number of stored entries. Copies of the same entry on
    several servers count once.
    """
    servers = SimulatedDirectory(strategy, SERVERS, rng.random)
    first, updates = draw_updates(entries, BETWEEN_ADDS * UPDATES, Lifetimes.EXPONENTIAL, rng)
    servers.request(Place(tuple(first)))
    initial_messages = servers.processed
    for _ in range(UPDATES):
        servers.request(next(updates)[1])
    return (servers.processed - initial_messages) / UPDATES
