"""What owners decide: how often each of their channels is polled, from what their node knows of the fleet.

The problem, the summaries and the solution are production's (``goals``, ``clusters``, ``honeycomb``, ``levels``). What
differs in the paper's mode is what a size means: n = N/bˡ is a wish for the wedge of l common digits, which holds as
many nodes as happen to have them. A channel whose wedge of K - 1 digits is empty is an *orphan* (§4): its owner polls
it alone, and it counts in the slack cluster, because its least is its most.
"""

from functools import cache, lru_cache
from math import isfinite

import numpy as np

from service.corona.aggregation import BASE, Aggregation
from service.corona.clusters import HELD_BACK, Clusters, decode, encode, merged, summarise
from service.corona.goals import Floats, Goal, size_for_wait, weights
from service.corona.honeycomb import Problem, load, sizes
from service.corona.levels import Solution, level_sizes, levels_for_budget, levels_for_delay, sizes_at
from service.corona.messages import Part
from service.model import NodeId
from service.simulate.nearest import Trie
from service.simulate.paper_levels import followed, merged_by_level, summarised, told_most
from service.simulate.trace import Ints
from service.simulate.workload import DRAWN_BITS, Bins, Channels, Setup

REMEMBERED = 4096
"""Sums that are kept, of 20 kB each."""
LEAST_SIZE = 1e-3
"""What weighs nothing is still looked at now and then."""


class Owners:
    """What all owners of a fleet have in common. Nodes that know the same need not solve it twice."""

    def __init__(self, setup: Setup, channels: Channels) -> None:
        self._setup, self._points = setup, channels.points
        self._demand = channels.subscribers.astype(np.float64)
        self._weights = weights(setup.goal, self._demand, channels.update_interval_s, setup.poll_interval_s)
        self.wanted: Floats = np.ones(setup.channels)
        """Each channel's n as it was wanted last, whatever its wedge holds."""
        self._excess: Floats = np.zeros(setup.channels)
        """What each channel's wedge holds beyond that."""
        self._decode = lru_cache(REMEMBERED)(decode)
        self._join = lru_cache(REMEMBERED)(self._joined)
        self._scale = cache(self._scale_of)
        self._solution = cache(self._solution_of)
        self._by_level = setup.base is not None and setup.bins is Bins.PAPER
        self._trie: Trie | None = None
        self._nodes = setup.nodes
        self._problem = Problem.of(self._weights)
        self._options: Floats = np.ones(1)
        """The sizes of all levels."""
        self._wedges: list[Ints] = []
        """By level, how many nodes have that many digits in common with each channel."""
        self._levels: Ints = np.zeros(0, dtype=np.int64)
        self._orphaned = np.zeros(0, dtype=bool)

    def aggregation(self, node: NodeId, silence_s: float) -> Aggregation:
        """Return a node's share in aggregation."""
        base = BASE if self._setup.base is None else self._setup.base
        return Aggregation(node, silence_s, base=base, join=self._join)

    def orphans(self, trie: Trie) -> int:
        """Return how many channels can only be polled by their owners."""
        self._look_at(trie)
        return int(self._orphaned.sum())

    def empty_wedges(self, trie: Trie) -> int:
        """Return how many wedges of K - 1 digits hold no node."""
        self._look_at(trie)
        if self._setup.base is None:
            return 0
        bits = (self._setup.base - 1).bit_length() * (len(self._options) - 2)
        return (1 << bits) - len(np.unique(trie.points >> np.uint64(DRAWN_BITS - bits))) if bits else 0

    def part(self, owned: Ints, trie: Trie) -> Part:
        """Return what the owner of these channels has to tell."""
        self._look_at(trie)
        owned_problem, bins = self._of(owned), self._setup.log_bins
        clusters = summarised(owned_problem, bins) if self._by_level else summarise(owned_problem, log_bins=bins)
        return Part(1, float((self._demand - self._excess)[owned].sum()), encode(clusters))

    def sizes(self, owned: Ints, fleet: Part, trie: Trie) -> Floats:
        """Return n of each of these channels, with the fleet as far as their owner knows it."""
        self._look_at(trie)
        problem = self._of(owned)
        if self._setup.base is None:
            self.wanted[owned] = np.maximum(sizes(problem, self._scale(fleet)), LEAST_SIZE)
            return self.wanted[owned]
        options = self._options
        told, solution = self._solution(fleet)
        if self._by_level:
            chosen = followed(problem, self._points[owned], told, options, solution)
        else:
            chosen = sizes_at(problem, options, solution.multiplier)
        self.wanted[owned] = chosen
        self._tell_levels(owned, np.searchsorted(-options, -chosen))
        real = np.ones(len(owned))
        for option, wedge in zip(options[:-1], self._wedges, strict=True):
            real = np.where(chosen == option, wedge[owned], real)
        self._excess[owned] = real - chosen
        return real

    def _scale_of(self, fleet: Part) -> float:
        """Return the scale of this fleet."""
        known = decode(fleet.clusters) or Clusters.none()
        if self._setup.goal is Goal.FAST:
            return known.scale_for_delay(self._setup.target_delay_s, self._setup.poll_interval_s)
        return known.scale_for_budget(fleet.demand)

    def _solution_of(self, fleet: Part) -> tuple[Problem, Solution]:
        """Return this fleet's clusters and their levels."""
        options = self._options
        told = (decode(fleet.clusters) or Clusters.none()).levelled()
        solution = levels_for_budget(told, options, max(0.0, fleet.demand) * (1 - HELD_BACK))
        if self._setup.goal is Goal.FAST:
            fast = levels_for_delay(told, options, self._setup.target_delay_s, self._setup.poll_interval_s)
            # A few nodes with many orphans among them would have all they know polled by everybody.
            if fleet.nodes == self._nodes or load(told, fast.sizes) < load(told, solution.sizes):
                solution = fast
        return told, solution

    def _joined(self, parts: tuple[Part, ...]) -> Part:
        """Do what ``aggregation.joined`` does, once for all who were told the same, in the bins asked for."""
        found = [clusters for part in parts if (clusters := self._decode(part.clusters)) is not None]
        bins = self._setup.log_bins
        together = merged_by_level(found, bins) if self._by_level else merged(found, log_bins=bins)
        return Part(sum(part.nodes for part in parts), sum(part.demand for part in parts), encode(together))

    def _of(self, owned: Ints) -> Problem:
        whole = self._problem
        return Problem(*(field[owned] for field in (whole.weights, whole.costs, whole.least, whole.most)))

    def _look_at(self, trie: Trie) -> None:
        """Make the problem that this ring poses."""
        if trie is self._trie:
            return
        self._trie = trie
        self._nodes = nodes = len(trie.nodes)
        if self._setup.base is None:
            wait_s = self._setup.longest_wait_s
            least = size_for_wait(wait_s, self._setup.poll_interval_s) if isfinite(wait_s) else 0.0
            self._problem = Problem.of(self._weights, least=least, most=float(nodes))
            return
        self._options = level_sizes(nodes, self._setup.base)
        digit_bits = (self._setup.base - 1).bit_length()
        levels = len(self._options) - 1
        self._wedges = [trie.sharing(self._points, level * digit_bits) for level in range(levels)]
        if not len(self._levels):
            self._levels = np.full(len(self._points), levels)
        self._orphaned = self._wedges[-1] == 0 if levels else np.zeros(len(self._points), dtype=bool)
        self._problem = Problem.of(self._weights, least=1.0, most=told_most(nodes, self._levels, self._orphaned))

    def _tell_levels(self, owned: Ints, levels: Ints) -> None:
        self._levels[owned] = levels
        self._problem.most[owned] = told_most(self._nodes, levels, self._orphaned[owned])
