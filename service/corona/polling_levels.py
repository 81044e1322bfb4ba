"""Polling levels: the wedges of nodes that poll a channel together, and the choice among them (Corona §3.1, §3.2).

Ids are written in a number system of base b. The *wedge* of a channel at level l consists of the nodes whose ids begin
with the same l digits as the channel's id: all N nodes at level 0, about N/bˡ at level l. These nodes are nearer to the
channel by XOR than all others, so that a wedge of n nodes is the polling set of the n nearest ones. If a wedge is
empty, the channel's owner polls it instead. Conversely, a channel that n nodes poll is at level log_b(N/n), a real
number.

If only whole levels are allowed, a channel's number of polls per τ is the size of one of its wedges. The optimiser
(:mod:`service.corona.honeycomb`) minimises w/n + λ·s·n for each channel, with c = 1/√λ. Two sizes n < n' are equally
good if c·√(w/s) = √(n·n'), so a channel takes the larger one if its wanted size c·√(w/s) is at least this *threshold*,
the geometric mean of both. Three rules complete this:

- Below one poll per τ, one node polls at the wanted rate: there is no smaller wedge. At level 0, all nodes may poll 2,
  4, 8, … times per τ, as far as the channel's most allows.
- A channel's least and most bound its size. The least is a size of its own: if it is 1.5, the channel has 1.5 polls per
  τ, made by the smallest wedge of at least 1.5 nodes, before it takes the next wedge.
- Channels with the same weight would take a step at the same c, all or none of them. Each channel's thresholds are
  therefore multiplied by a factor that follows from its id. The factors are spread over ``SPREAD`` of a level, so that
  c decides how many of these channels take the step. Measured against the exact discrete optimum, this costs at most
  0.3 % of the mean delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log2

import numpy as np

from service.corona.honeycomb import AllocationProblem
from service.corona.objectives import Floats
from service.model import ChannelId
from service.overlay.id_space import BITS
from service.overlay.ring import RingView

SPREAD = 0.1
"""Range of the thresholds of equal channels, as a share of a level."""

_HEX_BITS = 4
_PREFIX_DIGITS = 15
"""Leading hex digits of ids that are compared: whole digits of each base, which fit a 64-bit integer."""
_PREFIX_BITS = _HEX_BITS * _PREFIX_DIGITS
_FACTOR_DIGITS = 8
"""Trailing hex digits of a channel's id that determine its factor."""
_MAX_POLLS_PER_NODE = 1024
_ROUNDING = 1e-6
"""Relative tolerance for bounds."""


def level_of(size: float, nodes: int, base: int) -> float:
    """Return log_b(N/n), the polling level of a channel that ``size`` = n of N ``nodes`` poll, with ``base`` b.

    The result is between 0, if all nodes poll the channel, and log_b N, if one node does.
    """
    return log(nodes / min(max(size, 1.0), nodes), base)


def highest_level(nodes: int, base: int) -> int:
    """Return the lowest level at which a wedge has at most one node on average, on a ring of ``nodes`` nodes."""
    level = 0
    while base**level < nodes:
        level += 1
    return level


@dataclass(frozen=True, slots=True, eq=False)
class LevelChoices:
    """The wedges among which M channels choose.

    ``sizes``, shape (M, L), has the number of nodes in each channel's wedge at the levels 0 to L-1. It decreases from
    the number of all nodes to 1; an empty wedge counts as 1, the channel's owner. ``factors``, shape (M,), multiply
    each channel's thresholds.
    """

    sizes: Floats
    factors: Floats

    def rates(self, problem: AllocationProblem, wanted: Floats) -> Floats:
        """Return each channel's number of polls per τ, shape (M,).

        Args:
            problem: The channels' bounds.
            wanted: The polls per τ that weight and cost alone would give each channel, shape (M,), not negative.
        """
        least, top = _line_bounds(problem)
        found = np.minimum(np.maximum(wanted, least), top)
        before, after, thresholds = self.steps(problem)
        taken = (after > before) & (wanted[:, None] >= thresholds)
        return np.asarray(np.maximum(found, np.where(taken, after, 0.0).max(axis=1)))

    def steps(self, problem: AllocationProblem) -> tuple[Floats, Floats, Floats]:
        """Return the steps from size to size that these bounds allow: sizes before, sizes after, thresholds.

        Each array has shape (M, K). The thresholds are in polls per τ. Where a channel has fewer than K steps, both
        sizes are equal.
        """
        _, top = _line_bounds(problem)
        multiples = 2.0 ** np.arange(1, 1 + self._doublings(problem.most))
        after = np.concatenate((self.sizes[:, ::-1], self.sizes[:, :1] * multiples), axis=1)
        before = np.maximum(top[:, None], np.concatenate((after[:, :1], after[:, :-1]), axis=1))
        after = np.where(after <= problem.most[:, None] * (1 + _ROUNDING), np.maximum(before, after), before)
        return before, after, np.sqrt(before * after) * self.factors[:, None]

    def _doublings(self, most: Floats) -> int:
        """Return how often the number of all nodes can be doubled within the greatest of these sizes."""
        greatest = float((most / self.sizes[:, 0]).max(initial=1.0))
        return int(log2(min(max(greatest * (1 + _ROUNDING), 1.0), _MAX_POLLS_PER_NODE)))

    def set_sizes(self, rates: Floats) -> Floats:
        """Return the size of the smallest wedge in which no node polls more than once per τ, or of all nodes.

        ``rates`` are the channels' polls per τ; they and the result have shape (M,).
        """
        large_enough = self.sizes >= rates[:, None] * (1 - _ROUNDING)
        return np.asarray(np.where(large_enough, self.sizes, self.sizes[:, :1]).min(axis=1))

    def levels(self, set_size: float) -> Floats:
        """Return the lowest level of each channel at which its wedge has at most ``set_size`` nodes, shape (M,)."""
        return np.asarray(np.argmax(self.sizes <= set_size, axis=1), dtype=np.float64)


def line_part(problem: AllocationProblem) -> AllocationProblem:
    """Return the problem of the channels' polls below their first step, where sizes are real numbers."""
    least, top = _line_bounds(problem)
    return AllocationProblem(problem.weights, problem.costs, least, top)


class RingLevels:
    """The wedges of one ring in a number system of ``base`` 2, 4 or 16."""

    def __init__(self, view: RingView, base: int) -> None:
        """Divide the ring ``view``."""
        self.base = base
        self._prefixes = np.array([point >> BITS - _PREFIX_BITS for point in view.points], np.int64)

    def choices(self, channels: Sequence[ChannelId]) -> LevelChoices:
        """Return the wedges of these channels."""
        count, width = len(channels), self.base.bit_length() - 1
        prefixes = np.fromiter((int(channel[:_PREFIX_DIGITS], 16) for channel in channels), np.int64, count)
        sizes = [np.full(count, max(1.0, len(self._prefixes)))]
        for shift in range(_PREFIX_BITS - width, -1, -width):
            if sizes[-1].max(initial=1.0) <= 1:
                break
            nodes, wanted = self._prefixes >> shift, prefixes >> shift
            members = np.searchsorted(nodes, wanted, side="right") - np.searchsorted(nodes, wanted)
            sizes.append(np.maximum(members, 1.0))
        sizes[-1][:] = 1.0
        places = np.fromiter((int(channel[-_FACTOR_DIGITS:], 16) for channel in channels), np.float64, count)
        spread = places / 16.0**_FACTOR_DIGITS - 0.5
        return LevelChoices(np.stack(sizes, axis=1), self.base ** (SPREAD * spread))


def _line_bounds(problem: AllocationProblem) -> tuple[Floats, Floats]:
    """Return the bounds of each channel's polls per τ before its first step: the least, and 1 or the least above it."""
    least = np.minimum(problem.least, problem.most)
    return least, np.maximum(least, np.minimum(1.0, problem.most))
