"""The world of Corona §5: how many nodes, channels and subscriptions, where they are, and what is asked of them.

Ids are drawn to 64 bits of the 160: what lies below tells neither nodes nor channels apart.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.corona.goals import Goal
from service.model import ChannelId, NodeId, NodeInfo
from service.overlay.ids import BITS, from_hex, to_hex
from service.overlay.joining import balanced_id
from service.simulate.trace import HOUR_S, MINUTE_S, ZIPF_EXPONENT, Floats, Ints, draw_intervals_s

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
