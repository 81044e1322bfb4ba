"""The workload of Corona §5: parameters of a run, channels, node ids, and searches for the nodes nearest to channels.

The paper's authors found these distributions in a survey:

- 10 % of the channels change every 10 min to 1 h, and 40 % every 1 to 120 h; within these ranges, intervals are
  log-uniform. The other channels change once a week.
- Popularity has a Zipf distribution with exponent 0.5, independent of the update interval.

Other experiments use the same distributions.

An id has 160 bits. Only its first 64 bits, the *point*, are drawn at random, because they suffice to make all ids
different.
"""

# NodeTrie finds the nearest nodes of a hundred thousand channels at once, while production's RingView serves one
# channel at a time. It is a binary trie of node ids, which all queries descend together. At each vertex a query
# continues on the side that is nearer to its channel. If the node that it looks for is farther away than all nodes on
# this side, it continues on the other side. A test verifies that both classes give the same results.

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.corona.fleet_policy import FleetPolicy, Goal
from service.corona.optimizer.node_allocation import ChannelFactors, FactorTable, factor_table
from service.model import ChannelId, NodeId
from service.overlay.ring import BITS, balanced_id, from_hex, to_hex
from service.simulate.numerics import HOUR_S, MINUTE_S, WEEK_S, Floats, Ints

ZIPF_EXPONENT = 0.5
SUBSCRIBERS_PER_CHANNEL = 50
"""Mean number of subscribers of a channel in Corona §5: 5,000,000 subscriptions to 100,000 channels."""


def draw_intervals_s(channels: int, rng: np.random.Generator) -> Floats:
    """Draw, for each channel, the mean time between its updates from the distribution in Corona §5."""
    fast = np.exp(rng.uniform(np.log(10 * MINUTE_S), np.log(HOUR_S), channels))
    middle = np.exp(rng.uniform(np.log(HOUR_S), np.log(120 * HOUR_S), channels))
    place = rng.random(channels)
    return np.where(place < 0.1, fast, np.where(place < 0.5, middle, WEEK_S))  # noqa: PLR2004 - shares of the paper


def zipf_subscribers(channels: int, rng: np.random.Generator, per_channel: int = SUBSCRIBERS_PER_CHANNEL) -> Ints:
    """Return the number of subscribers of each channel. The numbers have a Zipf distribution, in random order.

    Each channel has at least 1 subscriber; the mean is about ``per_channel``.
    """
    share = np.arange(1, channels + 1) ** -ZIPF_EXPONENT
    wanted = share / share.sum() * channels * per_channel
    return rng.permutation(np.maximum(1, np.round(wanted)).astype(np.int64))


Points = NDArray[np.uint64]

DRAWN_BITS = 64


class PollPhases(StrEnum):
    """How the polls of one channel by several nodes are spread over the polling interval: evenly or at random."""

    EVEN = "even"
    RANDOM = "random"
    """As in Corona §3.3: each node waits a random part of the polling interval before its first poll."""


class IdAssignment(StrEnum):
    """How joining nodes choose their ids: so that the ids of all nodes are evenly spaced, or at random."""

    BALANCED = "balanced"
    RANDOM = "random"


class BinLayout(StrEnum):
    """How channels are divided into bins by their ratio of weight to cost.

    - QUANTILE uses quantiles, as in Coronet.
    - PAPER uses 16 bins of equal width on a logarithmic scale, as in the paper (§4).
    """

    QUANTILE = "quantile"
    PAPER = "16"


class CoronaSetup(msgspec.Struct, frozen=True):
    """The parameters of one run.

    - ``base`` is the base b of the paper's polling levels. At level l, a channel is polled by the nodes whose ids
      share the first l digits in base b with the channel's id. On average, these are N/bˡ of all N nodes. Without a
      base, any number of nodes can poll a channel.
    - ``rounds``, ``maintenance_s``: the run takes ``rounds`` intervals of ``maintenance_s`` seconds. Nodes revise
      their schedules once in each interval.
    - ``target_delay_s`` is the mean delay that the goal Fast has to achieve.
    - ``churn`` is the fraction of nodes that die per hour. The same number of nodes join.
    - ``loss`` is the fraction of messages that are lost.
    - ``policy`` sets the budget, and limits the polls of public channels. Without a policy, the paper's budget
      applies: as many polls as if each subscriber polled once per polling interval.

    A policy cannot be combined with a base. If there is a policy, ``goal``, ``poll_interval_s`` and
    ``longest_wait_s`` must have the same values as in the policy.
    """

    # Without a policy, the only limit of a channel's number of polling nodes is the number of nodes.

    goal: Goal = Goal.LITE
    base: int | None = None
    phases: PollPhases = PollPhases.EVEN
    ids: IdAssignment = IdAssignment.BALANCED
    bins: BinLayout = BinLayout.QUANTILE
    nodes: int = 1024
    channels: int = 100_000
    subscriptions: int = 5_000_000
    poll_interval_s: float = 30 * MINUTE_S
    maintenance_s: float = HOUR_S
    rounds: int = 6
    target_delay_s: float = 30.0
    longest_wait_s: float = inf
    churn: float = 0.0
    loss: float = 0.0
    policy: FleetPolicy | None = None

    @property
    def end_s(self) -> float:
        """The simulated duration of the run in seconds."""
        return self.rounds * self.maintenance_s

    @property
    def has_faults(self) -> bool:
        """Whether nodes die or messages are lost."""
        return self.churn > 0 or self.loss > 0

    @property
    def log_bins(self) -> int:
        """The number of bins of equal width into which channels are grouped; 0 if they are grouped by quantiles.

        Channels are grouped by log(w/s), where w is a channel's weight and s the cost of a poll; see
        :mod:`~service.corona.optimizer.tradeoff_clusters`. The product uses quantiles.
        """
        return int(self.bins) if self.bins is BinLayout.PAPER else 0


def setup_with_policy(setup: CoronaSetup, policy: FleetPolicy) -> CoronaSetup:
    """Return a copy of ``setup`` that has ``policy``, and this policy's goal, polling interval and delay limits.

    The maintenance interval, after which nodes revise their schedules, remains as in ``setup``.
    """
    return msgspec.structs.replace(
        setup,
        policy=policy,
        goal=policy.objective.goal,
        poll_interval_s=policy.poll_interval_s,
        target_delay_s=policy.objective.delay_s,
        longest_wait_s=policy.objective.longest_wait_s,
    )


@dataclass(frozen=True, slots=True)
class SimulatedChannels:
    """All M channels of a run as arrays of shape (M,); ``points`` contains the first 64 bits of each channel's id."""

    points: Points
    subscribers: Ints
    update_interval_s: Floats
    """Mean time between a channel's updates. The channel's owner knows this time, and does not have to estimate it."""

    def ids(self) -> list[ChannelId]:
        """Return the channels' ids in the format of the protocol, as strings of hexadecimal digits."""
        return [hex_id(point) for point in self.points.tolist()]

    def factors(self) -> FactorTable:
        """Return the channels as a table from which the product's code computes poll rates.

        All channels are public, and each belongs to a site of its own.
        """
        columns = zip(self.subscribers.tolist(), self.update_interval_s.tolist(), strict=True)
        return factor_table(
            (ChannelFactors(count, interval_s, private=False) for count, interval_s in columns), len(self.points)
        )


def draw_channels(setup: CoronaSetup, rng: np.random.Generator) -> SimulatedChannels:
    """Draw the id, the update interval and the number of subscribers of each channel.

    Subscriber counts have a Zipf distribution with exponent 0.5. Their sum is exactly ``setup.subscriptions``.
    """
    share = np.cumsum(np.arange(1, setup.channels + 1) ** -ZIPF_EXPONENT)
    subscribers = np.diff(np.round(share / share[-1] * setup.subscriptions), prepend=0.0).astype(np.int64)
    points = rng.integers(0, np.iinfo(np.uint64).max, setup.channels, dtype=np.uint64, endpoint=True)
    return SimulatedChannels(points, rng.permutation(subscribers), draw_intervals_s(setup.channels, rng))


def initial_nodes(setup: CoronaSetup, rng: np.random.Generator) -> list[NodeId]:
    """Choose the ids of the initial nodes as if the nodes had joined one after another."""
    nodes: list[NodeId] = []
    for _ in range(setup.nodes):
        nodes.append(next_node_id(setup.ids, nodes, rng))
    return nodes


def next_node_id(kind: IdAssignment, existing: list[NodeId], rng: np.random.Generator) -> NodeId:
    """Choose an id for a node that joins the nodes with the ids ``existing``. ``kind`` selects how the id is chosen."""
    if kind is IdAssignment.BALANCED:
        return balanced_id(existing)
    return hex_id(int(rng.integers(0, np.iinfo(np.uint64).max, dtype=np.uint64, endpoint=True)))


def hex_id(point: int) -> str:
    """Return the 160-bit id whose first 64 bits are ``point`` and whose other bits are 0."""
    return to_hex(point << (BITS - DRAWN_BITS))


def point_of(identity: str) -> int:
    """Return the first 64 bits of a 160-bit id, which is given as hexadecimal digits."""
    return from_hex(identity) >> (BITS - DRAWN_BITS)


BATCH_SIZE = 1 << 17
"""Number of queries that descend a trie together, such that their arrays fit into a processor's caches."""


class NodeTrie:
    """A binary search tree of the ids of all nodes. A node's index is its position in the sorted list of ids."""

    def __init__(self, nodes: Sequence[NodeId]) -> None:
        self.nodes = tuple(sorted(nodes))
        """The node ids, sorted."""
        self.points = np.array([point_of(node) for node in self.nodes], dtype=np.uint64)
        count = len(self.nodes)
        # Inner vertices are 0 to count - 2, parents before children; leaves follow. Both children of a leaf are the
        # leaf itself, so that a query that has arrived stays there.
        self._shift = np.zeros(2 * count - 1, dtype=np.uint64)
        self._zeros = np.arange(2 * count - 1, dtype=np.int32)
        self._ones = np.arange(2 * count - 1, dtype=np.int32)
        self._below = np.ones(2 * count - 1, dtype=np.int32)
        self._depth = self._build(count)

    def nodes_at_rank(self, targets: Points, ranks: Ints) -> Ints:
        """Return, for each target, the index of the node with the given rank.

        A node's rank is its position when nodes are sorted by distance from the target; the nearest node has rank 0.

        Args:
            targets: First 64 bits of channels' ids, shape (K,).
            ranks: One rank per target, below the number of nodes, shape (K,).
        """
        found = np.empty(len(targets), dtype=np.int64)
        for begin in range(0, len(targets), BATCH_SIZE):
            part = slice(begin, begin + BATCH_SIZE)
            found[part] = self._walk(targets[part], ranks[part].astype(np.int32))
        return found

    def wedge_sizes(self, targets: Points, bits: int) -> Ints:
        """Return, for each channel, how many nodes have ids with the same first ``bits`` bits as the channel's id.

        Corona's paper calls the set of these nodes a wedge (§3.1). ``targets`` contains the first 64 bits of the
        channels' ids.
        """
        if not bits:
            return np.full(len(targets), len(self.nodes), dtype=np.int64)
        shift = np.uint64(DRAWN_BITS - bits)
        prefixes, target_prefixes = self.points >> shift, targets >> shift
        return np.searchsorted(prefixes, target_prefixes, side="right") - np.searchsorted(prefixes, target_prefixes)

    def _walk(self, targets: Points, ranks: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> Ints:
        vertex = np.zeros(len(targets), dtype=np.int32)
        for _ in range(self._depth):
            ones = (targets >> self._shift[vertex] & np.uint64(1)).astype(bool)
            zero, one = self._zeros[vertex], self._ones[vertex]
            near = np.where(ones, one, zero)
            skipped = self._below[near]
            beyond = ranks >= skipped
            ranks = ranks - np.where(beyond, skipped, 0)
            vertex = np.where(beyond, zero + one - near, near)
        return vertex.astype(np.int64) - (len(self.nodes) - 1)

    def _build(self, count: int) -> int:
        """Build the inner vertices of the search tree for ``count`` nodes, and return its depth."""
        points = self.points.tolist()
        pending, made, deepest = [(0, 0, count, 0)] if count > 1 else [], 1, 0
        while pending:
            vertex, low, high, depth = pending.pop()
            bit = (points[low] ^ points[high - 1]).bit_length() - 1
            middle = int(np.searchsorted(self.points, np.uint64(points[high - 1] >> bit << bit)))
            self._shift[vertex], self._below[vertex] = bit, high - low
            for side, first, last in ((self._zeros, low, middle), (self._ones, middle, high)):
                if last - first == 1:
                    side[vertex] = count - 1 + first
                else:
                    side[vertex] = made
                    pending.append((made, first, last, depth + 1))
                    made += 1
            deepest = max(deepest, depth + 1)
        return deepest
