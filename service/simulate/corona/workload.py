"""The world of Corona §5: how many nodes, channels and subscriptions, where they are, and what is asked of them.

Ids are drawn to 64 bits of the 160: what lies below tells neither nodes nor channels apart.

Nearest nodes for a hundred thousand channels at once: what ``RingView`` answers one by one, as arrays. The ring's
binary trie is walked from the root by all questions together: as ``RingView`` does, always to the side that is nearer
first, or past it where it has too few nodes. A test holds the two to the same answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.corona.objectives import Goal
from service.model import ChannelId, NodeId, NodeInfo
from service.overlay.id_space import BITS, from_hex, to_hex
from service.overlay.ring import balanced_id
from service.simulate.schedulers.publication_trace import (
    HOUR_S,
    MINUTE_S,
    ZIPF_EXPONENT,
    Floats,
    Ints,
    draw_intervals_s,
)

Points = NDArray[np.uint64]

DRAWN_BITS = 64


class Phases(StrEnum):
    """When the nodes of a polling set poll."""

    EVEN = "even"
    RANDOM = "random"
    """The paper's text (§3.3): each waits a random time in (0, τ)."""


class Ids(StrEnum):
    """Which ids joining nodes take."""

    BALANCED = "balanced"
    RANDOM = "random"


class Bins(StrEnum):
    """How summaries are made: ours, or the paper's 16 of equal width (§4)."""

    QUANTILE = "quantile"
    PAPER = "16"


class Setup(msgspec.Struct, frozen=True):
    """One run. ``base`` is the paper's: n is one of N/bˡ and polling sets are wedges; without it, n is any number.

    ``target_delay_s`` is T of Fast; ``churn`` the share of the nodes that leave in an hour, as many joining, and
    ``loss`` the share of messages that never arrive.
    """

    goal: Goal = Goal.LITE
    base: int | None = None
    phases: Phases = Phases.EVEN
    ids: Ids = Ids.BALANCED
    bins: Bins = Bins.QUANTILE
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

    @property
    def end_s(self) -> float:
        """When the run ends."""
        return self.rounds * self.maintenance_s

    @property
    def restless(self) -> bool:
        """Whether anything goes wrong."""
        return self.churn > 0 or self.loss > 0

    @property
    def log_bins(self) -> int:
        """The number that ``clusters`` is told: 0 for ours."""
        return int(self.bins) if self.bins is Bins.PAPER else 0


@dataclass(frozen=True, slots=True)
class Channels:
    """All channels, each array of shape (M,): ``points`` are the first 64 bits of their ids."""

    points: Points
    subscribers: Ints
    update_interval_s: Floats
    """The mean time between updates, which owners know (§5 takes it from a survey)."""

    def ids(self) -> list[ChannelId]:
        """Return the channels' ids as the protocol has them."""
        return [hex_id(point) for point in self.points.tolist()]


def draw_channels(setup: Setup, rng: np.random.Generator) -> Channels:
    """Draw ids, popularity (Zipf 0.5, to the last subscription) and update intervals."""
    share = np.cumsum(np.arange(1, setup.channels + 1) ** -ZIPF_EXPONENT)
    wanted = np.diff(np.round(share / share[-1] * setup.subscriptions), prepend=0.0).astype(np.int64)
    points = rng.integers(0, np.iinfo(np.uint64).max, setup.channels, dtype=np.uint64, endpoint=True)
    return Channels(points, rng.permutation(wanted), draw_intervals_s(setup.channels, rng))


def first_nodes(setup: Setup, rng: np.random.Generator) -> list[NodeId]:
    """Return the nodes with which a run begins, having joined one after another."""
    nodes: list[NodeId] = []
    for _ in range(setup.nodes):
        nodes.append(new_id(setup.ids, nodes, rng))
    return nodes


def new_id(kind: Ids, existing: list[NodeId], rng: np.random.Generator) -> NodeId:
    """Return the id that the next node takes."""
    if kind is Ids.BALANCED:
        return balanced_id(existing)
    return hex_id(int(rng.integers(0, np.iinfo(np.uint64).max, dtype=np.uint64, endpoint=True)))


def node_info(node: NodeId) -> NodeInfo:
    """Return a member of a ring."""
    return NodeInfo(node, epoch=1, name=node[:8], joined_s=0.0)


def hex_id(point: int) -> str:
    """Return the id whose first 64 bits these are."""
    return to_hex(point << (BITS - DRAWN_BITS))


def point_of(identity: str) -> int:
    """Return the first 64 bits of an id."""
    return from_hex(identity) >> (BITS - DRAWN_BITS)


AT_ONCE = 1 << 17
"""Questions walked together: what fits the caches of a processor."""


class Trie:
    """One ring. Nodes are numbered in the order of their ids."""

    def __init__(self, nodes: Sequence[NodeId]) -> None:
        self.nodes = tuple(sorted(nodes))
        """Their ids."""
        self.points = np.array([point_of(node) for node in self.nodes], dtype=np.uint64)
        count = len(self.nodes)
        # Inner vertices are 0 to count - 2, a parent before its children; leaves are count - 1 and on. A leaf's
        # children are itself, so that a walk that has arrived stays.
        self._shift = np.zeros(2 * count - 1, dtype=np.uint64)
        self._zeros = np.arange(2 * count - 1, dtype=np.int32)
        self._ones = np.arange(2 * count - 1, dtype=np.int32)
        self._below = np.ones(2 * count - 1, dtype=np.int32)
        self._depth = self._build(count)

    def at_rank(self, targets: Points, ranks: Ints) -> Ints:
        """Return the number of the node that is nearest but so many to each target; 0 asks for the owner.

        Args:
            targets: First bits of channels' ids, shape (K,).
            ranks: Less than the number of nodes, shape (K,).
        """
        found = np.empty(len(targets), dtype=np.int64)
        for begin in range(0, len(targets), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            found[part] = self._walk(targets[part], ranks[part].astype(np.int32))
        return found

    def sharing(self, targets: Points, bits: int) -> Ints:
        """Return how many nodes share this many leading bits with each target: the size of its wedge (Corona §3.1)."""
        if not bits:
            return np.full(len(targets), len(self.nodes), dtype=np.int64)
        shift = np.uint64(DRAWN_BITS - bits)
        prefixes, wanted = self.points >> shift, targets >> shift
        return np.searchsorted(prefixes, wanted, side="right") - np.searchsorted(prefixes, wanted)

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
        """Fill in the vertices; return how many steps the longest walk takes."""
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
