"""Adds and deletes in a steady state (§6): Figures 9, 10 and 11, of the product's servers.

Adds are Poisson, one in 10 time units; each entry's lifetime is drawn when it comes, with a mean of 10·h, so that h
entries are there on average. The entries that are there at first have what is left of such lifetimes.
"""

from collections.abc import Iterator
from enum import StrEnum
from math import log

import msgspec
import numpy as np

from service.discovery.partial.placement_metrics import Floats, lookup_steps, placement, retrieval_chances, unfairness
from service.discovery.partial.servers import Add, Delete, Place
from service.discovery.partial.strategies import (
    Fixed,
    Hash,
    Strategy,
    copies_needed,
    expected_overhead,
    failing_share,
    strategy_name,
)
from service.simulate.partial_lookup.static import ENTRIES, SERVERS, STORAGE, Curve, Servers, of_storage

BETWEEN_ADDS = 10.0
"""Time units, on average."""

CUSHIONED_TARGET = 15
CUSHIONS = tuple(range(8))
CUSHIONED_TIME = 300_000.0
"""How long each run of Figure 9 is, in time units."""

AGED_TARGET = 15
AGED_UPDATES = tuple(range(0, 2001, 100))
AGED_INSTANCES = 20

UPDATED_TARGET = 40
UPDATED_X = 50
UPDATES = 3000
BREAKS = (134, 200, 400)
"""From here on the paper's y is one less (Figure 11): at 400/3, 200 and 400 entries."""
UPDATED_ENTRIES = tuple(sorted({*range(100, 601, 20), *BREAKS, *(entries - 1 for entries in BREAKS)}))


class Lifetimes(StrEnum):
    """How lifetimes are spread."""

    EXPONENTIAL = "exponential"
    ZIPF = "Zipf-like"
    """As likely as one through themselves, from 1 up to what gives their mean; the paper does not give its own."""


class Updates(msgspec.Struct, frozen=True):
    """Of one seed."""

    failing: tuple[Curve, ...]
    """Figure 9: share of the time in which Fixed-(15 + cushion) has less than 15 entries, by cushion; by lifetimes."""
    failing_expected: tuple[float, ...]
    """The same by our formula, which does not know lifetimes."""
    failing_twice_expected: float
    """With lifetimes of 2,000 and a cushion of 2."""
    aged_unfairness: tuple[Curve, ...]
    """Figure 10, by updates."""
    overheads: tuple[Curve, ...]
    """Figure 11: messages per update, by h."""
    overheads_expected: tuple[Curve, ...]


def events(
    entries: int, time: float, lifetimes: Lifetimes, rng: np.random.Generator
) -> tuple[list[str], Iterator[tuple[float, Add | Delete]]]:
    """Return the entries that are there at first, and all updates of so much time, in order."""
    mean = BETWEEN_ADDS * entries
    adds = np.cumsum(rng.exponential(BETWEEN_ADDS, round(1.1 * time / BETWEEN_ADDS) + 100))
    adds = adds[adds < time]
    first = rng.permutation(_left(lifetimes, mean, entries, rng))
    ends = np.concatenate((first, adds + _drawn(lifetimes, mean, len(adds), rng)))
    when = np.concatenate((adds, ends))
    order = np.argsort(when, kind="stable")

    def updates() -> Iterator[tuple[float, Add | Delete]]:
        for place in order[: np.searchsorted(when[order], time)].tolist():
            added = place < len(adds)
            name = f"e{place + entries if added else place - len(adds)}"
            yield float(when[place]), Add(name) if added else Delete(name)

    return [f"e{number}" for number in range(entries)], updates()


def longest(mean: float) -> float:
    """Return m, for which (m - 1) / ln m is the mean of lifetimes between 1 and m."""
    found = mean
    for _ in range(60):
        found = 1 + mean * log(found)
    return found


def _drawn(lifetimes: Lifetimes, mean: float, count: int, rng: np.random.Generator) -> Floats:
    if lifetimes is Lifetimes.EXPONENTIAL:
        return rng.exponential(mean, count)
    return longest(mean) ** rng.random(count)


def _left(lifetimes: Lifetimes, mean: float, count: int, rng: np.random.Generator) -> Floats:
    """Return what is left of lifetimes under way: of longer ones there are more, which evens the Zipf-like out."""
    if lifetimes is Lifetimes.EXPONENTIAL:
        return rng.exponential(mean, count)
    return rng.random(count) * (1 + rng.random(count) * (longest(mean) - 1))


def run(rng: np.random.Generator) -> Updates:
    """Return one seed's figures."""
    return Updates(
        failing=tuple(
            Curve(kind.value, tuple(_failing(cushion, ENTRIES, kind, rng) for cushion in CUSHIONS))
            for kind in Lifetimes
        ),
        failing_expected=tuple(failing_share(CUSHIONED_TARGET, cushion, ENTRIES) for cushion in CUSHIONS),
        failing_twice_expected=failing_share(CUSHIONED_TARGET, 2, 2 * ENTRIES),
        aged_unfairness=tuple(
            Curve(strategy_name(strategy), tuple(_aged(strategy, rng).mean(axis=0).tolist()))
            for strategy in of_storage(STORAGE)
        ),
        overheads=(
            Curve(strategy_name(Fixed(UPDATED_X)), tuple(overhead(Fixed(UPDATED_X), h, rng) for h in UPDATED_ENTRIES)),
            Curve("Hash", tuple(overhead(_hash(h), h, rng) for h in UPDATED_ENTRIES)),
        ),
        overheads_expected=(
            Curve(
                strategy_name(Fixed(UPDATED_X)),
                tuple(expected_overhead(Fixed(UPDATED_X), h, 10) for h in UPDATED_ENTRIES),
            ),
            Curve("Hash", tuple(expected_overhead(_hash(h), h, SERVERS) for h in UPDATED_ENTRIES)),
        ),
    )


def _hash(entries: int) -> Hash:
    return Hash(copies_needed(UPDATED_TARGET, entries, SERVERS))


def _failing(cushion: int, entries: int, lifetimes: Lifetimes, rng: np.random.Generator) -> float:
    """Return the share of the time in which Fixed-(t + cushion) has too few entries; all servers have the same."""
    servers = Servers(Fixed(CUSHIONED_TARGET + cushion), SERVERS, rng.random)
    first, updates = events(entries, CUSHIONED_TIME, lifetimes, rng)
    servers.request(Place(tuple(first)))
    failing, before = 0.0, 0.0
    for at, update in updates:
        if len(servers.servers[0].entries) < CUSHIONED_TARGET:
            failing += at - before
        before = at
        servers.request(update)
    return failing / CUSHIONED_TIME


def _aged(strategy: Strategy, rng: np.random.Generator) -> Floats:
    """Return the unfairness after so many updates, instances by ``AGED_UPDATES``, of what is there then."""
    found = np.zeros((AGED_INSTANCES, len(AGED_UPDATES)))
    for instance in range(AGED_INSTANCES):
        servers = Servers(strategy, SERVERS, rng.random)
        first, updates = events(ENTRIES, BETWEEN_ADDS * AGED_UPDATES[-1], Lifetimes.EXPONENTIAL, rng)
        there = dict.fromkeys(first)
        servers.request(Place(tuple(first)))
        number = 0
        for column, until in enumerate(AGED_UPDATES):
            for _ in range(until - number):
                _, update = next(updates)
                servers.request(update)
                there = there | {update.entry: None} if isinstance(update, Add) else there
                if isinstance(update, Delete):
                    del there[update.entry]
            number = until
            placed = placement(servers.shares, list(there))
            found[instance, column] = unfairness(
                retrieval_chances(placed, AGED_TARGET, lookup_steps(strategy, SERVERS)), AGED_TARGET
            )
    return found


def overhead(strategy: Strategy, entries: int, rng: np.random.Generator) -> float:
    """Return how many messages servers process per update (Figure 11)."""
    servers = Servers(strategy, SERVERS, rng.random)
    first, updates = events(entries, BETWEEN_ADDS * UPDATES, Lifetimes.EXPONENTIAL, rng)
    servers.request(Place(tuple(first)))
    placing = servers.processed
    for _ in range(UPDATES):
        servers.request(next(updates)[1])
    return (servers.processed - placing) / UPDATES
