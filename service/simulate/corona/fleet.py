"""A whole fleet in simulated time: what each node knows, decides and tells, hour after hour (Corona §3.3).

Every node is its own: it ticks at its own phase, hears what the wire brings it (``service.corona.aggregation``), solves
for the scale with what it knows by then (``owners``), and writes its channels' rotas down. The run begins empty: owners
alone poll (n = 1), and nobody has heard of anybody.

A node that dies is noticed when its lease ends; then, as on any change of the ring, each owner names its polling sets
anew, and who takes a channel over begins its rota anew, knowing only its own size of it.

*Owners* decide how often each of their channels is polled, from what their node knows of the fleet.

The problem, the summaries and the solution are production's (``goals``, ``clusters``, ``honeycomb``). What
differs in the paper's mode is what a size means: n = N/bˡ is a wish for the wedge of l common digits, which holds as
many nodes as happen to have them. A channel whose wedge of K - 1 digits is empty is an *orphan* (§4): its owner polls
it alone, and it counts in the slack cluster, because its least is its most.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from heapq import heappop, heappush
from itertools import count
from math import isfinite

import numpy as np

from service.corona.aggregation import BASE, Aggregation
from service.corona.clusters import BUDGET_MARGIN, TradeoffClusters, decode, encode, merge, summarise
from service.corona.fleet_policy import SOFT_STATE_INTERVALS
from service.corona.honeycomb import AllocationProblem, load, sizes
from service.corona.messages import Aggregate, Summary
from service.corona.objectives import Goal, size_for_wait, weights
from service.model import NodeId
from service.overlay.ring import RingView
from service.simulate.corona.paper_levels import (
    Solution,
    followed,
    level_sizes,
    levels_for_budget,
    levels_for_delay,
    merged_by_level,
    sizes_at,
    summarised,
    told_most,
)
from service.simulate.corona.timetable import Rotas, Timetable
from service.simulate.corona.workload import (
    DRAWN_BITS,
    Bins,
    Channels,
    Setup,
    Trie,
    first_nodes,
    new_id,
    node_info,
    point_of,
)
from service.simulate.schedulers.publication_trace import HOUR_S, Bools, Floats, Ints

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
        self._problem = AllocationProblem.of(self._weights)
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

    def part(self, owned: Ints, trie: Trie) -> Aggregate:
        """Return what the owner of these channels has to tell."""
        self._look_at(trie)
        owned_problem, bins = self._of(owned), self._setup.log_bins
        clusters = summarised(owned_problem, bins) if self._by_level else summarise(owned_problem, log_bins=bins)
        return Aggregate(1, float((self._demand - self._excess)[owned].sum()), encode(clusters))

    def sizes(self, owned: Ints, fleet: Aggregate, trie: Trie) -> Floats:
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

    def _scale_of(self, fleet: Aggregate) -> float:
        """Return the scale of this fleet."""
        known = decode(fleet.clusters) or TradeoffClusters.empty()
        if self._setup.goal is Goal.FAST:
            return known.scale_for_delay(self._setup.target_delay_s, self._setup.poll_interval_s)
        return known.scale_for_budget(fleet.demand)

    def _solution_of(self, fleet: Aggregate) -> tuple[AllocationProblem, Solution]:
        """Return this fleet's clusters and their levels."""
        options = self._options
        told = (decode(fleet.clusters) or TradeoffClusters.empty()).to_level_problem()
        solution = levels_for_budget(told, options, max(0.0, fleet.demand) * (1 - BUDGET_MARGIN))
        if self._setup.goal is Goal.FAST:
            fast = levels_for_delay(told, options, self._setup.target_delay_s, self._setup.poll_interval_s)
            # A few nodes with many orphans among them would have all they know polled by everybody.
            if fleet.nodes == self._nodes or load(told, fast.sizes) < load(told, solution.sizes):
                solution = fast
        return told, solution

    def _joined(self, parts: tuple[Aggregate, ...]) -> Aggregate:
        """Do what ``aggregation.combine`` does, once for all who were told the same, in the bins asked for."""
        found = [clusters for part in parts if (clusters := self._decode(part.clusters)) is not None]
        bins = self._setup.log_bins
        together = merged_by_level(found, bins) if self._by_level else merge(found, log_bins=bins)
        return Aggregate(sum(part.nodes for part in parts), sum(part.demand for part in parts), encode(together))

    def _of(self, owned: Ints) -> AllocationProblem:
        whole = self._problem
        return AllocationProblem(*(field[owned] for field in (whole.weights, whole.costs, whole.least, whole.most)))

    def _look_at(self, trie: Trie) -> None:
        """Make the problem that this ring poses."""
        if trie is self._trie:
            return
        self._trie = trie
        self._nodes = nodes = len(trie.nodes)
        if self._setup.base is None:
            wait_s = self._setup.longest_wait_s
            least = size_for_wait(wait_s, self._setup.poll_interval_s) if isfinite(wait_s) else 0.0
            self._problem = AllocationProblem.of(self._weights, least=least, most=float(nodes))
            return
        self._options = level_sizes(nodes, self._setup.base)
        digit_bits = (self._setup.base - 1).bit_length()
        levels = len(self._options) - 1
        self._wedges = [trie.sharing(self._points, level * digit_bits) for level in range(levels)]
        if not len(self._levels):
            self._levels = np.full(len(self._points), levels)
        self._orphaned = self._wedges[-1] == 0 if levels else np.zeros(len(self._points), dtype=bool)
        self._problem = AllocationProblem.of(
            self._weights, least=1.0, most=told_most(nodes, self._levels, self._orphaned)
        )

    def _tell_levels(self, owned: Ints, levels: Ints) -> None:
        self._levels[owned] = levels
        self._problem.most[owned] = told_most(self._nodes, levels, self._orphaned[owned])


TICKS_PER_MAINTENANCE = 4
"""As workers have it."""
LEASE_S = 6.0
"""How long a dead node stays on the ring: the default of workers."""
NOBODY = -1
A_BIT_EARLY = 1e-9
"""Of an interval: sums of ticks may round."""
MEDIAN_DELAY_S = 0.08
DELAY_SPREAD = 0.5
"""Of the logarithm of a message's delay: one in a hundred takes three times the median. Our choice, as of several
continents."""
DRAWN_AT_ONCE = 1 << 16


class Wire:
    """Delays and losses, drawn one after another."""

    def __init__(self, loss: float, rng: np.random.Generator) -> None:
        self._loss, self._rng = loss, rng
        self._drawn: list[float] = []

    def delay_s(self) -> float | None:
        """Return how long the next message takes; None if it is lost."""
        if not self._drawn:
            delays_s = MEDIAN_DELAY_S * np.exp(DELAY_SPREAD * self._rng.standard_normal(DRAWN_AT_ONCE))
            self._drawn = np.where(self._rng.random(DRAWN_AT_ONCE) < self._loss, np.nan, delays_s).tolist()
        drawn_s = self._drawn.pop()
        return drawn_s if drawn_s == drawn_s else None  # noqa: PLR0124 - NaN is a lost one


class Fleet:
    """All nodes of one run. The rotas of ``followed`` channels are written down; the others are decided alike."""

    def __init__(self, setup: Setup, channels: Channels, followed: Ints, rng: np.random.Generator) -> None:
        self.setup, self.channels, self._rng = setup, channels, rng
        self.owners = Owners(setup, channels)
        self.sizes: Floats = np.ones(setup.channels)
        """Every channel's n as its owner has decided it last."""
        self.tries: list[Trie] = []
        """Every ring there was."""
        self.numbers: list[Ints] = []
        """The numbers of each ring's nodes, in the order of their ids; no two nodes ever have the same, even if one
        takes the id of another that has died."""
        self.died_s: dict[int, float] = {}
        """When the nodes of which numbers died; they are on the ring for ``LEASE_S`` more."""
        self._dead: set[NodeId] = set()
        self._view = RingView(0, ())
        self._known: dict[NodeId, int] = {}
        self._owner: Ints = np.full(setup.channels, NOBODY)
        self._wire = Wire(setup.loss, rng)
        self._rotas = Rotas(setup, channels, followed)
        self._nodes: dict[NodeId, Aggregation] = {}
        self._maintained_s: dict[int, float] = {}
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._orders, self._numbers = count(), count()

    @property
    def trie(self) -> Trie:
        """The present ring."""
        return self.tries[-1]

    def run(self) -> Timetable:
        """Let the whole time pass; return the rotas of the channels followed."""
        self._enter(first_nodes(self.setup, self._rng), 0.0)
        self._rotas.begin(self._rotas.followed, self.sizes, 0, len(self.trie.nodes), 0.0)
        for at_s, happening in self._churn():
            self._plan(at_s, happening)
        while self._agenda and self._agenda[0][0] < self.setup.end_s:
            now_s, _, happening = heappop(self._agenda)
            happening(now_s)
        return self._rotas.timetable(self.setup.channels)

    def _plan(self, at_s: float, happening: Callable[[float], None]) -> None:
        heappush(self._agenda, (at_s, next(self._orders), happening))

    def _tick(self, node: NodeId, number: int, now_s: float) -> None:
        if node in self._dead or self._known.get(node) != number:
            return
        self._plan_tick(node, number, now_s + self.setup.maintenance_s / TICKS_PER_MAINTENANCE)
        due_s = self._maintained_s.get(number, -np.inf) + self.setup.maintenance_s * (1 - A_BIT_EARLY)
        if now_s >= due_s:
            self._maintained_s[number] = now_s
            self._maintain(node, now_s)
        for send in self._nodes[node].tick(now_s):
            delay_s = self._wire.delay_s()
            if delay_s is not None and isinstance(send.message, Summary):
                self._plan_arrival(node, send.node, send.message, now_s + delay_s)

    def _plan_tick(self, node: NodeId, number: int, at_s: float) -> None:
        self._plan(at_s, lambda now_s: self._tick(node, number, now_s))

    def _plan_arrival(self, sender: NodeId, receiver: NodeId, summary: Summary, at_s: float) -> None:
        def arrives(now_s: float) -> None:
            if receiver in self._nodes and receiver not in self._dead:
                self._nodes[receiver].on_summary(sender, summary, now_s)

        self._plan(at_s, arrives)

    def _maintain(self, node: NodeId, now_s: float) -> None:
        """Decide anew how often each of the node's channels is polled."""
        owned = np.flatnonzero(self._owner == self._known[node])
        self.sizes[owned] = self.owners.sizes(owned, self._nodes[node].fleet(), self.trie)
        self._nodes[node].own = self.owners.part(owned, self.trie)
        self._rotas.change(owned, self.sizes, len(self.tries) - 1, len(self.trie.nodes), now_s)

    def _churn(self) -> list[tuple[float, Callable[[float], None]]]:
        """Return when nodes die and join: as many of the one as of the other, at any time."""
        expected = self.setup.churn * self.setup.nodes * self.setup.end_s / HOUR_S
        times_s = (self._rng.random(int(self._rng.poisson(expected))) * self.setup.end_s for _ in range(2))
        dying, joining = (drawn.tolist() for drawn in times_s)
        return [*((at_s, self._die) for at_s in dying), *((at_s, self._join) for at_s in joining)]

    def _die(self, now_s: float) -> None:
        alive = [node for node in self.trie.nodes if node not in self._dead]
        node = alive[int(self._rng.integers(len(alive)))]
        self._dead.add(node)
        self.died_s[self._known[node]] = now_s
        self._plan(now_s + LEASE_S, lambda at_s: self._leave(node, at_s))

    def _leave(self, node: NodeId, now_s: float) -> None:
        del self._nodes[node], self._known[node]
        self._dead.remove(node)
        self._enter(tuple(other for other in self.trie.nodes if other != node), now_s)

    def _join(self, now_s: float) -> None:
        self._enter((*self.trie.nodes, new_id(self.setup.ids, list(self.trie.nodes), self._rng)), now_s)

    def _enter(self, nodes: Sequence[NodeId], now_s: float) -> None:
        """Let everybody know the ring of these nodes: channels change hands, and polling sets their members."""
        self._view = RingView(self._view.version + 1, tuple(map(node_info, nodes)))
        self.tries.append(Trie(nodes))
        for node in nodes:
            if node not in self._nodes:
                number = self._known[node] = next(self._numbers)
                self._nodes[node] = self.owners.aggregation(node, SOFT_STATE_INTERVALS * self.setup.maintenance_s)
                phase = float(self._rng.random())
                self._plan_tick(node, number, now_s + phase * self.setup.maintenance_s / TICKS_PER_MAINTENANCE)
            self._nodes[node].on_ring_changed(self._view)
        self._hand_over(now_s)

    def _hand_over(self, now_s: float) -> None:
        """Let owners take over what is theirs on the new ring, and name anew the sets that it has changed."""
        self.numbers.append(np.array([self._known[node] for node in self.trie.nodes], dtype=np.int64))
        owner = self.numbers[-1][self.trie.at_rank(self.channels.points, np.zeros_like(self._owner))]
        moved = owner != self._owner
        touched = set(np.unique(np.concatenate((owner[moved], self._owner[moved]))).tolist()) - {NOBODY}
        self._owner = owner
        for node in self.trie.nodes:
            if (number := self._known[node]) in touched:
                owned = np.flatnonzero(owner == number)
                self._nodes[node].own = self.owners.part(owned, self.trie)
                if len(self.tries) > 1:
                    taken = owned[moved[owned]]
                    self.sizes[taken] = self.owners.sizes(taken, self._nodes[node].fleet(), self.trie)
        if len(self.tries) > 1:
            ring, stayed = len(self.tries) - 1, self._rotas.followed[~moved[self._rotas.followed]]
            self._rotas.begin(np.flatnonzero(moved), self.sizes, ring, len(self.trie.nodes), now_s)
            self._rotas.change(stayed[self._concerned(stayed)], self.sizes, ring, len(self.trie.nodes), now_s)

    def _concerned(self, numbers: Ints) -> Bools:
        """Say which of these channels have another polling set than on the ring before."""
        before, after = self.tries[-2:]
        points = self.channels.points[numbers]
        concerned = np.zeros(len(numbers), dtype=bool)
        for trie, other in ((before, after), (after, before)):
            members = np.minimum(np.ceil(self.sizes[numbers]), len(trie.nodes)).astype(np.int64)
            farthest = trie.points[trie.at_rank(points, members - 1)] ^ points
            for node in set(trie.nodes) - set(other.nodes):
                concerned |= np.uint64(point_of(node)) ^ points <= farthest
        return concerned
