"""Polling levels: the wedges of nodes that poll a channel together, and the choice among them (Corona §3.1, §3.2).

Ids are written in a number system of base b. The *wedge* of a channel at level l consists of the nodes whose ids begin
with the same l digits as the channel's id: all N nodes at level 0, about N/bˡ at level l. These nodes are nearer to the
channel by XOR than all others, so that a wedge of n nodes is the polling set of the n nearest ones. If a wedge is
empty, the channel's owner polls it instead. Conversely, a channel that n nodes poll is at level log_b(N/n), a real
number.

If only whole levels are allowed, a channel's number of polls per τ is the size of one of its wedges. The optimiser
(``allocation_solver``) minimises w/n + λ·s·n for each channel, with c = 1/√λ. Two sizes n < n' are equally good if
c·√(w/s) = √(n·n'), so a channel takes the larger one if its wanted size c·√(w/s) is at least this *threshold*, the
geometric mean of both. Three rules complete this:

- Below one poll per τ, one node polls at the wanted rate: there is no smaller wedge. At level 0, all nodes may poll 2,
  4, 8, … times per τ, as far as the channel's maximum (``most``) allows.
- A channel's ``least`` and ``most`` are the minimum and the maximum of its size. The minimum is an additional size: if
  it is 1.5, the channel has 1.5 polls per τ, made by the smallest wedge of at least 1.5 nodes, before it takes the next
  wedge.
- Channels with the same weight would take a step at the same c, all or none of them. Each channel's thresholds are
  therefore multiplied by a factor that follows from its id. The factors are spread over ``SPREAD`` of a level, so that
  c decides how many of these channels take the step.

So that nodes can solve for c, each summarises the *steps* of its channels. A step is a channel's change from one size
to the next larger one, by the actual sizes of its wedges. As a function of c, a channel's cost is a clipped line
(``tradeoff_clusters``) up to its minimum or to 1; beyond, it rises at each step's threshold of c. A summary consists of
*bins*, which are sums of steps with neighbouring thresholds. Each bin adds about the same proportion to the polls of
all bins before it. Summaries are merged by concatenation, and reduced to ``MAX_BINS`` bins.

A bin of one step is exact. A larger bin reaches from halfway to the bin before it to halfway to the bin after it. Its
steps are taken to be evenly spaced in this range (as in a t-digest; T. Dunning, O. Ertl 2019), but at least one of them
at its start. ``BUDGET_MARGIN`` of the budget is held back for the error that remains.

Measured with 500 random fleets of 1 to 100 nodes and 10 to 8,000 channels: the load is never more than 0.3 % above the
budget. With at least 1,000 channels it is 99.0 to 100.2 % of what the exact discrete optimum would use, and the mean
delay is at most 1.8 % longer. In fleets of a few dozen channels, the last step that does not fit can be a large share
of the budget.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import log, log2
from typing import NamedTuple, Self

import numpy as np

from service.corona.optimizer import allocation_solver
from service.corona.optimizer.allocation_solver import AllocationProblem
from service.corona.optimizer.objectives import Floats
from service.corona.optimizer.tradeoff_clusters import TradeoffClusters, pack_columns, unpack_columns
from service.model import ChannelId
from service.overlay.ring import BITS, RingView

SPREAD = 0.1
"""The width in levels of the range over which the thresholds of channels of equal weight are spread."""

MAX_BINS = 1024
BUDGET_MARGIN = 3e-3

_STEP_ROW = np.dtype([("steps", "<u4"), ("threshold", "<f4"), ("cost", "<f4"), ("saving", "<f4")])
_FLOAT_MAX = float(np.finfo(np.float32).max)
_LEAST_SHARE = 1e-3
"""Share of the cost of all steps within which the bins have about equal costs.

Beyond this share, each bin adds about the same proportion to the cost of all bins before it.
"""
_HALVINGS = 50
_WIRE_ROUNDING = 3e-7
_HEX_BITS = 4
_PREFIX_DIGITS = 15
"""Number of leading hex digits of ids that are compared: whole digits in each base that fit a 64-bit integer."""
_PREFIX_BITS = _HEX_BITS * _PREFIX_DIGITS
_FACTOR_DIGITS = 8
"""Number of trailing hex digits of a channel's id that determine the factor of its thresholds."""
_MAX_POLLS_PER_NODE = 1024
_ROUNDING = 1e-6
"""Relative tolerance when sizes are compared with their bounds."""


def level_of(size: float, nodes: int, base: int) -> float:
    """Return log_b(N/n), the polling level of a channel that ``size`` = n of N ``nodes`` poll, with ``base`` b.

    The result is between 0, if all nodes poll the channel, and log_b N, if one node does.
    """
    return log(nodes / min(max(size, 1.0), nodes), base)


def highest_level(nodes: int, base: int) -> int:
    """Return the lowest polling level whose wedges have at most one node on average, on a ring of ``nodes`` nodes.

    A wedge of level l consists of the nodes whose ids have l leading digits of ``base`` in common with a channel's id.
    """
    level = 0
    while base**level < nodes:
        level += 1
    return level


class LevelChoices(NamedTuple):
    """The wedges from which the polling sets of M channels are chosen, one per polling level.

    - ``sizes``, shape (M, L): the number of nodes in each channel's wedge at the levels 0 to L-1. It decreases from the
      number of all nodes to 1. An empty wedge counts as 1, the channel's owner.
    - ``factors``, shape (M,): factors of each channel's *thresholds*, the wanted polls per τ from which the channel
      takes a larger wedge. The factors differ, so that channels of equal weight do not all take a larger wedge at once.
    """

    sizes: Floats
    factors: Floats

    def rates(self, problem: AllocationProblem, wanted: Floats) -> Floats:
        """Return each channel's number of polls per τ, shape (M,).

        Args:
            problem: The channels' bounds.
            wanted: The polls per τ that follow from each channel's weight and cost, without bounds; shape (M,), not
                negative.
        """
        least, top = _line_bounds(problem)
        found = np.minimum(np.maximum(wanted, least), top)
        before, after, thresholds = self.steps(problem)
        taken = (after > before) & (wanted[:, None] >= thresholds)
        return np.asarray(np.maximum(found, np.where(taken, after, 0.0).max(axis=1)))

    def steps(self, problem: AllocationProblem) -> tuple[Floats, Floats, Floats]:
        """Return (sizes before, sizes after, thresholds) of the steps to larger wedges that the problem's bounds allow.

        Each is an array of shape (M, K), for M channels with up to K steps. A step changes a channel's polls per τ from
        the size before to the size after, when the wanted polls per τ reach the threshold. Where a channel has fewer
        than K steps, both sizes are equal.
        """
        _, top = _line_bounds(problem)
        multiples = 2.0 ** np.arange(1, 1 + self._doublings(problem.most))
        after = np.concatenate((self.sizes[:, ::-1], self.sizes[:, :1] * multiples), axis=1)
        before = np.maximum(top[:, None], np.concatenate((after[:, :1], after[:, :-1]), axis=1))
        after = np.where(after <= problem.most[:, None] * (1 + _ROUNDING), np.maximum(before, after), before)
        return before, after, np.sqrt(before * after) * self.factors[:, None]

    def _doublings(self, most: Floats) -> int:
        """Return the number of sizes beyond the whole ring: 2, 4, 8, … polls per τ by each of all nodes.

        The result is the maximum over all channels. ``most`` has each channel's maximum number of polls per τ.
        """
        greatest = float((most / self.sizes[:, 0]).max(initial=1.0))
        return int(log2(min(max(greatest * (1 + _ROUNDING), 1.0), _MAX_POLLS_PER_NODE)))

    def set_sizes(self, rates: Floats) -> Floats:
        """Return the number of nodes in each channel's polling set at these ``rates``, in polls per τ.

        A polling set is the smallest wedge in which no node polls more than once per τ. If there is no such wedge, it
        has all nodes. Argument and result have shape (M,).
        """
        large_enough = self.sizes >= rates[:, None] * (1 - _ROUNDING)
        return np.asarray(np.where(large_enough, self.sizes, self.sizes[:, :1]).min(axis=1))

    def levels(self, set_size: float) -> Floats:
        """Return, for each channel, the lowest polling level whose wedge has at most ``set_size`` nodes; shape (M,)."""
        return np.asarray(np.argmax(self.sizes <= set_size, axis=1), dtype=np.float64)


def below_first_step(problem: AllocationProblem) -> AllocationProblem:
    """Return the problem restricted to sizes below each channel's first step to a larger wedge.

    These sizes may be any real numbers.
    """
    least, top = _line_bounds(problem)
    return problem._replace(least=least, most=top)


class RingLevels:
    """The wedges of one ring, by which channels are polled at whole polling levels.

    A channel's wedge at level l consists of the nodes whose ids begin with the same l digits as the channel's id. The
    digits are those of a number system of ``base`` 2, 4 or 16.
    """

    def __init__(self, view: RingView, base: int) -> None:
        """Prepare the wedges of the ring ``view``; ``base`` is 2, 4 or 16, the base of the digits of ids."""
        self.base = base
        self._prefixes = np.array([point >> BITS - _PREFIX_BITS for point in view.points], np.int64)

    def choices(self, channels: Sequence[ChannelId]) -> LevelChoices:
        """Return the wedges of these channels, from which their polling sets are chosen, as numbers of nodes."""
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
    """Return (minimum, maximum) of each channel's polls per τ before its first step to a larger wedge.

    Both arrays have shape (M,). Before this step, one node polls the channel: at most once per τ, unless the channel's
    minimum is higher.
    """
    least = np.minimum(problem.least, problem.most)
    return least, np.maximum(least, np.minimum(1.0, problem.most))


class LevelSteps(NamedTuple):
    """K *bins*, ordered by threshold: each is a sum of channels' steps with neighbouring thresholds.

    A step is a channel's change from n to n' polls per τ, the size of a larger wedge. Each array has shape (K,):

    - ``steps``: the number of steps in the bin.
    - ``threshold``: the mean, weighted by cost, of the scales c at which the steps are taken.
    - ``cost``: Σ s·(n'-n) over the steps, where s is the cost of one poll.
    - ``saving``: Σ w·(1/n-1/n') over the steps, where w is the channel's weight.
    """

    steps: Floats
    threshold: Floats
    cost: Floats
    saving: Floats

    @classmethod
    def of(cls, problem: AllocationProblem, choices: LevelChoices) -> Self:
        """Return the steps of the problem's channels between the wedges of ``choices``, in up to ``MAX_BINS`` bins."""
        before, after, thresholds = choices.steps(problem)
        slopes = problem.slopes()[:, None]
        can_take = (after > before) & (thresholds < slopes * _FLOAT_MAX)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = (thresholds / slopes)[can_take]
            cost = (problem.costs[:, None] * (after - before))[can_take]
            saving = (problem.weights[:, None] * (1 / before - 1 / after))[can_take]
        return cls.merge([cls(np.ones_like(at), at, cost, saving)])

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Return the steps of all summaries in ``parts``, in at most ``MAX_BINS`` bins."""
        if not parts:
            return cls(*(np.zeros(0) for _ in cls._fields))
        together = cls(*map(np.concatenate, zip(*parts, strict=True)))
        order = np.argsort(together.threshold, kind="stable")
        steps, threshold, cost, saving = found = cls(*(column[order] for column in together))
        if len(steps) <= MAX_BINS:
            return found
        mass = np.log1p(np.cumsum(cost) / max(float(cost.sum()) * _LEAST_SHARE, np.finfo(float).tiny))
        _, starts = np.unique((mass / mass[-1] * (MAX_BINS - 1)).astype(np.intp), return_index=True)
        steps, weighted, total, saving = (
            np.add.reduceat(field, starts) for field in (steps, threshold * cost, cost, saving)
        )
        return cls(steps, weighted / total, total, saving)

    def encode(self) -> bytes:
        """Return the wire format that :func:`decode_steps` reads, 16 bytes per bin."""
        rows = pack_columns(_STEP_ROW, self)
        rows["threshold"] = np.nextafter(rows["threshold"], np.float32(0))  # not above that of a single step
        return rows.tobytes()

    def scale_for_budget(self, lines: TradeoffClusters, budget: float) -> float:
        """Return the highest scale at which all channels together cost at most ``budget`` per τ.

        ``lines`` are the tradeoff clusters of the same channels, restricted to sizes below their first step. If the
        budget does not suffice for the minimum sizes of all channels, the result is negative, as for
        :func:`allocation_solver.scale_for_budget`.
        """
        usable = lines.usable_budget(budget * (1 - BUDGET_MARGIN) if self.steps.max(initial=1) > 1 else budget)
        problem = lines.to_problem()
        if float(lines.least_cost.sum()) >= usable or not len(self.steps):
            return lines.scale_for_budget(budget)

        def exceeds(scale: float) -> bool:
            steps = float((self.cost * self._shares_taken(scale, at_most=True)).sum())
            return allocation_solver.load(problem, allocation_solver.sizes(problem, scale)) + steps > usable

        return self._find_change(exceeds, problem)[0]

    def scale_for_delay(self, lines: TradeoffClusters, delay_s: float, poll_interval_s: float) -> float:
        """Return the lowest scale at which the weighted mean delay of all channels is at most ``delay_s``.

        ``lines`` are the tradeoff clusters of the same channels, restricted to sizes below their first step, and
        ``poll_interval_s`` is τ. If the delay is unattainable, all channels reach their maximum sizes at the resulting
        scale.
        """
        if not len(self.steps):
            return lines.scale_for_delay(delay_s, poll_interval_s)
        problem = lines.to_problem()
        helpable = (problem.weights > 0) & (problem.most > 0)
        # The delay of all channels is τ/2 · Σ w/n / Σ w; in a cluster, Σ w/n is its weight divided by its size.
        allowed = float(lines.weight.sum()) * 2 * delay_s / poll_interval_s

        def suffices(scale: float) -> bool:
            with np.errstate(divide="ignore", invalid="ignore"):
                waiting = problem.weights / allocation_solver.sizes(problem, scale)
            saved = float((self.saving * self._shares_taken(scale, at_most=False)).sum())
            return float(waiting.sum(where=helpable)) - saved <= allowed

        return self._find_change(suffices, problem)[1]

    def _find_change(self, holds: Callable[[float], bool], lines: AllocationProblem) -> tuple[float, float]:
        """Return (before, after), two close scales: the condition ``holds`` is false before and true after.

        The condition must be true at all scales above some scale. If it is never true, both results are the scale at
        which all channels reach their maximum sizes. ``lines`` are the channels, restricted to sizes below their first
        step.
        """
        # Thresholds are rounded down on the wire.
        points = np.unique(np.concatenate(([0.0], self.threshold * (1 + _WIRE_ROUNDING), lines.least, lines.most)))
        place = bisect_left(points, True, key=lambda scale: holds(float(scale)))
        if place == len(points):
            return float(points[-1]), float(points[-1])
        low, high = float(points[max(place - 1, 0)]), float(points[place])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return low, high * (1 + _WIRE_ROUNDING)

    def _shares_taken(self, scale: float, *, at_most: bool) -> Floats:
        """Return an estimate of the share of each bin's steps that are taken at this scale, shape (K,).

        All steps of a bin except one are assumed to be evenly spread over the bin's range of scales. If ``at_most`` is
        true, the remaining step is placed at the start of the range, and the estimate is an upper bound. Otherwise it
        is placed at the end of the range, and the estimate is a lower bound.
        """
        middles = (self.threshold[1:] + self.threshold[:-1]) / 2
        starts = np.concatenate((self.threshold[:1], middles))
        ends = np.concatenate((middles, self.threshold[-1:]))
        spread = (self.steps > 1) & (ends > starts)
        shares = (scale - starts) / np.where(spread, ends - starts, 1.0)
        even = np.clip(shares, 0.0, 1.0) * (1 - 1 / self.steps)
        begun = scale >= (starts if at_most else ends)
        return np.where(spread, even + begun / self.steps, scale >= self.threshold)


def decode_steps(raw: bytes) -> LevelSteps | None:
    """Return the steps, or None if ``raw`` is not a valid summary.

    A summary is invalid if its length is wrong, if it has too many bins, if a number is negative, infinite or NaN, or
    if a bin is empty.
    """
    columns = unpack_columns(_STEP_ROW, raw, MAX_BINS)
    return LevelSteps.merge([LevelSteps(*columns)]) if columns else None
