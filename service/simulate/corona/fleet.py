"""A fleet of simulated Corona nodes, their decisions, and the resulting polling schedules (§3.3).

The *owner* of a channel is the node whose id is nearest to the channel's id. The owner decides the channel's size n,
the number of nodes that poll it. Nodes learn about the rest of the fleet from *aggregates*, which summarise many
channels.

Each node does the following periodically, at times that differ between nodes:

1. It exchanges aggregates with other nodes (``service.corona.aggregation``).
2. It computes the factor by which the sizes of all channels are multiplied so that the fleet meets its goal. For this,
   it uses the aggregates that it has received.
3. It makes the polling schedules of the channels that it owns.

At the start, each channel is polled by its owner only (n = 1), and no aggregates have been exchanged yet.
"""

# A node's death is noticed when its lease ends. As after every change of the ring, owners then assign new polling sets.
# The new owner of a channel makes a new schedule, with a size n that it computes itself.
#
# Objectives, clusters and optimisation are the production packages (objectives, tradeoff_clusters, allocation_solver).
# With the paper's polling levels, the size n = N/bˡ has another meaning: all nodes poll whose ids share l digits with
# the channel's. These nodes are its wedge of level l; their number varies. At the last level K, only the owner polls. A
# channel whose wedge of level K - 1 has no nodes is an orphan (§4): only its owner polls it. Orphans are summarised in
# a cluster of their own, the slack cluster, because their size cannot change.

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from itertools import count
from math import isfinite

import numpy as np

from service.corona.aggregation import BASE, Aggregation, is_valid
from service.corona.events import Send
from service.corona.fleet_policy import SOFT_STATE_INTERVALS, Goal
from service.corona.messages import Aggregate, Summary, SummaryConfirmation, SummaryRequest
from service.corona.node_protocol import TICK_TOLERANCE
from service.corona.optimizer import node_allocation
from service.corona.optimizer.allocation_solver import AllocationProblem, load, sizes
from service.corona.optimizer.objectives import size_for_wait, weights
from service.corona.optimizer.tradeoff_clusters import BUDGET_MARGIN, TradeoffClusters, decode, encode, merge, summarise
from service.model import NodeId, NodeInfo
from service.overlay.ring import RingView
from service.simulate.corona.paper_levels import (
    LevelSolution,
    encode_levels,
    level_sizes,
    levels_for_budget,
    levels_for_delay,
    merge_by_level,
    owner_sizes,
    sizes_at,
    summarise_by_level,
)
from service.simulate.corona.timetable import OwnerSchedules, Timetable
from service.simulate.corona.workload import (
    DRAWN_BITS,
    BinLayout,
    CoronaSetup,
    NodeTrie,
    SimulatedChannels,
    initial_nodes,
    next_node_id,
    point_of,
)
from service.simulate.numerics import HOUR_S, Bools, Floats, Ints


class VirtualClock:
    """A simulated clock with a queue of functions to call at later times."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Arrange for ``act`` to be called in ``delay_s`` simulated seconds.

        Calls that are due at the same time are made in the order in which they were added.
        """
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._order), act))

    def run_until(self, end_s: float) -> None:
        """Advance the simulated time to ``end_s``, making all calls that are due by then, in chronological order."""
        while self._due and self._due[0][0] <= end_s:
            self.now_s, _, act = heapq.heappop(self._due)
            act()
        self.now_s = end_s


CACHED_AGGREGATES = 4096
"""Number of aggregates (summaries of channels) in each cache; one takes 20 kB."""
MIN_SIZE = 1e-3
"""Minimum number of polls of a channel per polling interval τ. With it, even a channel to which the goal gives no
weight is polled occasionally."""


class OwnerDecisions:
    """Decides, for all nodes of a fleet, how many nodes poll each channel.

    The owner of a channel, the node whose id is nearest to the channel's id, makes the decision. Owners with the same
    information about the fleet share one cached solution of the optimisation problem.
    """

    def __init__(self, setup: CoronaSetup, channels: SimulatedChannels) -> None:
        self._setup, self._points = setup, channels.points
        self._demand = channels.subscribers.astype(np.float64)
        self._weights = weights(setup.goal, self._demand, channels.update_interval_s, setup.poll_interval_s)
        self._factors = channels.factors() if setup.policy is not None else None
        self.requested: Floats = np.ones(setup.channels)
        """The requested number n of polling nodes of each channel. Its wedge may contain more or fewer nodes."""
        self._excess: Floats = np.zeros(setup.channels)
        """The number of nodes in each channel's wedge minus its requested n."""
        self._decode = lru_cache(CACHED_AGGREGATES)(decode)
        self._join = lru_cache(CACHED_AGGREGATES)(self._combine)
        self._validate = lru_cache(CACHED_AGGREGATES)(is_valid)
        self._scale = cache(self._scale_of)
        self._solution = cache(self._solution_of)
        self._by_level = setup.base is not None and setup.bins is BinLayout.PAPER
        self._nodes = 0
        self._problem = AllocationProblem.of(self._weights)
        self._options: Floats = np.ones(1)
        """The sizes N/bˡ of all levels."""
        self._wedges: list[Ints] = []
        """For each level l, the number of nodes whose ids share the first l digits with each channel's id."""
        self._levels: Ints = np.zeros(0, dtype=np.int64)
        self._orphaned = np.zeros(0, dtype=bool)

    def aggregation(self, node: NodeId, silence_s: float) -> Aggregation:
        """Return a new object through which ``node`` exchanges aggregates (summaries of channels) with other nodes.

        If another node is silent for ``silence_s`` seconds, the aggregates received from that node are dropped.
        """
        base = BASE if self._setup.base is None else self._setup.base
        return Aggregation(node, silence_s, base=base, join=self._join, validate=self._validate)

    def on_ring_changed(self, trie: NodeTrie) -> None:
        """Update the limits on how many nodes can poll each channel, after nodes have joined or left.

        ``trie`` contains the ids of all current nodes. If the setup has a policy, the weights of channels and the
        demands for polls are updated too. This method must be called once before any other.
        """
        self._nodes = nodes = len(trie.nodes)
        if self._setup.policy is not None and self._factors is not None:
            self._problem = node_allocation.allocation_problem(self._setup.policy, nodes, self._factors)
            self._demand = node_allocation.channel_demands(self._setup.policy, nodes, self._factors)
            return
        if self._setup.base is None:
            wait_s = self._setup.longest_wait_s
            least = size_for_wait(wait_s, self._setup.poll_interval_s) if isfinite(wait_s) else 0.0
            self._problem = AllocationProblem.of(self._weights, least=least, most=float(nodes))
            return
        self._options = level_sizes(nodes, self._setup.base)
        digit_bits = (self._setup.base - 1).bit_length()
        levels = len(self._options) - 1
        self._wedges = [trie.wedge_sizes(self._points, level * digit_bits) for level in range(levels)]
        if not len(self._levels):
            self._levels = np.full(len(self._points), levels)
        self._orphaned = self._wedges[-1] == 0 if levels else np.zeros(len(self._points), dtype=bool)
        self._problem = AllocationProblem.of(
            self._weights, least=1.0, most=encode_levels(nodes, self._levels, self._orphaned)
        )

    def budget(self) -> float:
        """Return the fleet's poll budget: the mean number of polls of a channel per polling interval."""
        policy = self._setup.policy
        return float(self._demand.mean()) * (policy.objective.demand_factor if policy is not None else 1.0)

    def orphans(self) -> int:
        """Return how many channels only their owner can poll, because no other id is near enough (Corona §4)."""
        return int(self._orphaned.sum())

    def empty_wedges(self, trie: NodeTrie) -> int:
        """Return the number of wedges that contain no node of the ring; 0 if the setup has no base.

        A wedge is the set of all ids that begin with the same K - 1 digits in the setup's base. K is the highest
        polling level: at this level, a channel is polled by its owner only.
        """
        if self._setup.base is None:
            return 0
        bits = (self._setup.base - 1).bit_length() * (len(self._options) - 2)
        return (1 << bits) - len(np.unique(trie.points >> np.uint64(DRAWN_BITS - bits))) if bits else 0

    def aggregate(self, owned: Ints) -> Aggregate:
        """Return a summary of the channels that one node owns, for sending to other nodes.

        ``owned`` contains the indices of these channels.
        """
        problem, bins = self._of(owned), self._setup.log_bins
        clusters = summarise_by_level(problem, bins) if self._by_level else summarise(problem, log_bins=bins)
        demand = float((self._demand[owned] - self._excess[owned]).sum())
        return Aggregate(1, demand, encode(clusters), channels=len(owned))

    def sizes(self, owned: Ints, fleet: Aggregate) -> Floats:
        """Decide how many nodes poll each of the channels that one node owns.

        ``owned`` contains the indices of the channels. ``fleet`` summarises all channels of the fleet; the node has
        combined it from the aggregates that it has received.
        """
        problem = self._of(owned)
        if self._setup.base is None:
            self.requested[owned] = np.maximum(sizes(problem, self._scale(fleet)), MIN_SIZE)
            return self.requested[owned]
        options = self._options
        clusters, solution = self._solution(fleet)
        if self._by_level:
            chosen = owner_sizes(problem, self._points[owned], clusters, options, solution)
        else:
            chosen = sizes_at(problem, options, solution.multiplier)
        self.requested[owned] = chosen
        self._set_levels(owned, np.searchsorted(-options, -chosen))
        real = np.ones(len(owned))
        for option, wedge in zip(options[:-1], self._wedges, strict=True):
            real = np.where(chosen == option, wedge[owned], real)
        self._excess[owned] = real - chosen
        return real

    def _scale_of(self, fleet: Aggregate) -> float:
        """Return the factor by which all channels' sizes are multiplied so that the fleet meets its goal.

        A channel's size is the number of nodes that poll it. ``fleet`` summarises all channels of the fleet.
        """
        if self._setup.policy is not None:
            return node_allocation.solve_scale(self._setup.policy, self._nodes, fleet) or 0.0
        known = decode(fleet.clusters) or TradeoffClusters.empty()
        if self._setup.goal is Goal.FAST:
            return known.scale_for_delay(self._setup.target_delay_s, self._setup.poll_interval_s)
        return known.scale_for_budget(fleet.demand)

    def _solution_of(self, fleet: Aggregate) -> tuple[AllocationProblem, LevelSolution]:
        """Return (problem, solution): an optimisation problem, and its solution by the paper's algorithm.

        ``fleet`` summarises all channels of the fleet as clusters of similar channels. The problem is how many nodes
        should poll each channel of a cluster.
        """
        options = self._options
        clusters = (decode(fleet.clusters) or TradeoffClusters.empty()).to_level_problem()
        solution = levels_for_budget(clusters, options, max(0.0, fleet.demand) * (1 - BUDGET_MARGIN))
        if self._setup.goal is Goal.FAST:
            fast = levels_for_delay(clusters, options, self._setup.target_delay_s, self._setup.poll_interval_s)
            # If an owner has aggregates of few nodes with many orphans, Fast would let all nodes poll other channels.
            if fleet.nodes == self._nodes or load(clusters, fast.sizes) < load(clusters, solution.sizes):
                solution = fast
        return clusters, solution

    def _combine(self, parts: tuple[Aggregate, ...]) -> Aggregate:
        """Combine several summaries of channels into one.

        A summary divides channels into bins of similar channels. This run's setup determines the bins of the result.
        """
        decoded = [clusters for part in parts if (clusters := self._decode(part.clusters)) is not None]
        bins = self._setup.log_bins
        together = merge_by_level(decoded, bins) if self._by_level else merge(decoded, log_bins=bins)
        nodes, demand = sum(part.nodes for part in parts), sum(part.demand for part in parts)
        return Aggregate(nodes, demand, encode(together), channels=sum(part.channels for part in parts))

    def _of(self, owned: Ints) -> AllocationProblem:
        whole = self._problem
        return AllocationProblem(*(field[owned] for field in (whole.weights, whole.costs, whole.least, whole.most)))

    def _set_levels(self, owned: Ints, levels: Ints) -> None:
        self._levels[owned] = levels
        self._problem.most[owned] = encode_levels(self._nodes, levels, self._orphaned[owned])


TICKS_PER_MAINTENANCE = 4
"""Number of times that a node's timer fires per maintenance interval, as in workers."""
LEASE_S = 6.0
"""Time from a node's death until its lease ends and it leaves the ring: the default of the setting ``lease_ttl_s``."""
NO_OWNER = -1
MEDIAN_DELAY_S = 0.08
DELAY_SPREAD = 0.5
"""Standard deviation of the natural logarithm of a message's delay. With it, one delay in a hundred is more than three
times the median. The value is an assumption for nodes on several continents."""
DELAY_BATCH = 1 << 16


class SimulatedNetwork:
    """A network that randomly delays and loses messages."""

    def __init__(self, loss: float, rng: np.random.Generator) -> None:
        self._loss, self._rng = loss, rng
        self._drawn: list[float] = []

    def delay_s(self) -> float | None:
        """Return the delay of the next message in seconds, or None if the message is lost."""
        if not self._drawn:
            delays_s = MEDIAN_DELAY_S * np.exp(DELAY_SPREAD * self._rng.standard_normal(DELAY_BATCH))
            self._drawn = np.where(self._rng.random(DELAY_BATCH) < self._loss, np.nan, delays_s).tolist()
        drawn_s = self._drawn.pop()
        return drawn_s if drawn_s == drawn_s else None  # noqa: PLR0124 - NaN means lost


class SimulatedFleet(VirtualClock):
    """All nodes of one run, on a virtual clock.

    The nodes decide how often each channel is polled. Polling schedules are recorded only for the channels whose
    indices are in ``sampled``.
    """

    def __init__(
        self, setup: CoronaSetup, channels: SimulatedChannels, sampled: Ints, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.setup, self.channels, self._rng = setup, channels, rng
        self.owners = OwnerDecisions(setup, channels)
        self.sizes: Floats = np.ones(setup.channels)
        """The latest number n of polling nodes of each channel."""
        self.tries: list[NodeTrie] = []
        """All rings of the run, in order."""
        self.numbers: list[Ints] = []
        """For each ring, numbers that identify its nodes, in the order of the nodes' ids. A number is used only once in
        a run, even if a node gets the id of a dead one."""
        self.died_s: dict[int, float] = {}
        """Time of death by node number; a dead node stays on the ring for ``LEASE_S``."""
        self._dead: set[NodeId] = set()
        self._view = RingView(0, ())
        self._known: dict[NodeId, int] = {}
        self._owner: Ints = np.full(setup.channels, NO_OWNER)
        self._network = SimulatedNetwork(setup.loss, rng)
        self._schedules = OwnerSchedules(setup, channels, sampled)
        self._nodes: dict[NodeId, Aggregation] = {}
        self._maintained_s: dict[int, float] = {}
        self._numbers = count()

    @property
    def trie(self) -> NodeTrie:
        """The current nodes of the fleet, as a search tree of their ids."""
        return self.tries[-1]

    def run(self) -> Timetable:
        """Run the simulation, and return the polling schedules of the sampled channels."""
        setup, rng = self.setup, self._rng
        self._install_ring(initial_nodes(setup, rng))
        self._schedules.begin(self._schedules.sampled, self.sizes, 0, len(self.trie.nodes), 0.0)
        changes = setup.churn * setup.nodes * setup.end_s / HOUR_S
        for change in (self._die, self._join):
            for at_s in (rng.random(int(rng.poisson(changes))) * setup.end_s).tolist():
                self.after(at_s, change)
        self.run_until(setup.end_s)
        return self._schedules.timetable(setup.channels)

    def _tick(self, node: NodeId, number: int) -> None:
        if node in self._dead or self._known.get(node) != number:
            return
        self.after(self.setup.maintenance_s / TICKS_PER_MAINTENANCE, partial(self._tick, node, number))
        due_s = self._maintained_s.get(number, -np.inf) + self.setup.maintenance_s * (1 - TICK_TOLERANCE)
        if is_maintenance := self.now_s >= due_s:
            self._maintained_s[number] = self.now_s
            self._maintain(node)
        self._send(node, self._nodes[node].tick(self.now_s, is_maintenance=is_maintenance))

    def _send(self, sender: NodeId, sends: Iterable[Send]) -> None:
        for send in sends:
            delay_s = self._network.delay_s()
            if not self.setup.has_faults and isinstance(send.message, SummaryConfirmation):
                # Without faults, the delay of a confirmation has no effect: the receiver has the confirmed aggregate.
                self._nodes[send.node].on_message(sender, send.message, self.now_s)
            elif delay_s is not None:
                self.after(delay_s, partial(self._deliver, sender, send))

    def _deliver(self, sender: NodeId, send: Send) -> None:
        node, message = self._nodes.get(send.node), send.message
        if node is None or send.node in self._dead:
            return
        if isinstance(message, Summary | SummaryConfirmation | SummaryRequest):
            self._send(send.node, node.on_message(sender, message, self.now_s))

    def _maintain(self, node: NodeId) -> None:
        """Recompute how many nodes poll each channel that ``node`` owns, and these channels' polling schedules."""
        owned = np.flatnonzero(self._owner == self._known[node])
        self.sizes[owned] = self.owners.sizes(owned, self._nodes[node].fleet())
        self._nodes[node].own = self.owners.aggregate(owned)
        self._schedules.change(owned, self.sizes, len(self.tries) - 1, len(self.trie.nodes), self.now_s)

    def _die(self) -> None:
        alive = [node for node in self.trie.nodes if node not in self._dead]
        node = alive[int(self._rng.integers(len(alive)))]
        self._dead.add(node)
        self.died_s[self._known[node]] = self.now_s
        self.after(LEASE_S, partial(self._leave, node))

    def _leave(self, node: NodeId) -> None:
        del self._nodes[node], self._known[node]
        self._dead.remove(node)
        self._install_ring(tuple(other for other in self.trie.nodes if other != node))

    def _join(self) -> None:
        self._install_ring((*self.trie.nodes, next_node_id(self.setup.ids, list(self.trie.nodes), self._rng)))

    def _install_ring(self, nodes: Sequence[NodeId]) -> None:
        """Replace the fleet's nodes with ``nodes``, and transfer each channel to the node that owns it now."""
        self._view = RingView(self._view.version + 1, tuple(NodeInfo(node, 1, node[:8], 0.0) for node in sorted(nodes)))
        self.tries.append(NodeTrie(nodes))
        self.owners.on_ring_changed(self.trie)
        for node in nodes:
            if node not in self._nodes:
                number = self._known[node] = next(self._numbers)
                self._nodes[node] = self.owners.aggregation(node, SOFT_STATE_INTERVALS * self.setup.maintenance_s)
                phase = float(self._rng.random())
                self.after(phase * self.setup.maintenance_s / TICKS_PER_MAINTENANCE, partial(self._tick, node, number))
            self._nodes[node].on_ring_changed(self._view)
        self._transfer_channels()

    def _transfer_channels(self) -> None:
        """Transfer each channel to its new owner, the node whose id is now nearest to the channel's id.

        If a channel keeps its owner but is now polled by other nodes than before, its schedule is changed.
        """
        self.numbers.append(np.array([self._known[node] for node in self.trie.nodes], dtype=np.int64))
        owner = self.numbers[-1][self.trie.nodes_at_rank(self.channels.points, np.zeros_like(self._owner))]
        moved = owner != self._owner
        touched = set(np.unique(np.concatenate((owner[moved], self._owner[moved]))).tolist()) - {NO_OWNER}
        self._owner = owner
        for node in self.trie.nodes:
            if (number := self._known[node]) in touched:
                owned = np.flatnonzero(owner == number)
                self._nodes[node].own = self.owners.aggregate(owned)
                if len(self.tries) > 1:
                    gained = owned[moved[owned]]
                    self.sizes[gained] = self.owners.sizes(gained, self._nodes[node].fleet())
        if len(self.tries) > 1:
            ring, stayed = len(self.tries) - 1, self._schedules.sampled[~moved[self._schedules.sampled]]
            self._schedules.begin(np.flatnonzero(moved), self.sizes, ring, len(self.trie.nodes), self.now_s)
            changed = stayed[self._has_changed_set(stayed)]
            self._schedules.change(changed, self.sizes, ring, len(self.trie.nodes), self.now_s)

    def _has_changed_set(self, numbers: Ints) -> Bools:
        """Return, for each channel in ``numbers``, whether the latest ring change affects which nodes poll it."""
        before, after = self.tries[-2:]
        points = self.channels.points[numbers]
        differs = np.zeros(len(numbers), dtype=bool)
        for trie, other in ((before, after), (after, before)):
            members = np.minimum(np.ceil(self.sizes[numbers]), len(trie.nodes)).astype(np.int64)
            farthest = trie.points[trie.nodes_at_rank(points, members - 1)] ^ points
            for node in set(trie.nodes) - set(other.nodes):
                differs |= np.uint64(point_of(node)) ^ points <= farthest
        return differs
