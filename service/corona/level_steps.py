"""Level steps: a summary of the steps between whole polling levels, and the scale c that allows as many as possible.

If only whole levels are allowed (:mod:`service.corona.polling_levels`), a channel's polls per τ are a clipped line up
to its least or to 1, as in :mod:`service.corona.tradeoff_clusters`, and rise by *steps* from wedge to wedge, each at a
threshold of c. A node summarises the steps of its channels, by the sizes of their actual wedges, in *bins* of steps
with neighbouring thresholds. Summaries are merged by concatenation, and reduced to ``MAX_BINS`` bins. Each bin adds
about the same proportion to the polls of all bins before it.

A bin of one step is exact. The steps of a larger bin are taken to be evenly spaced between the midpoints to the
neighbouring bins (as in a t-digest; T. Dunning, O. Ertl 2019). As far as this is wrong, the load differs from the
budget; ``BUDGET_MARGIN`` of the budget is held back for that.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from service.corona import honeycomb
from service.corona.honeycomb import AllocationProblem
from service.corona.objectives import Floats
from service.corona.polling_levels import LevelChoices
from service.corona.tradeoff_clusters import TradeoffClusters

MAX_BINS = 1024
BIN_BYTES = 16
BUDGET_MARGIN = 3e-3

_ROW = np.dtype([("count", "<u4"), ("threshold", "<f4"), ("cost", "<f4"), ("saving", "<f4")])
_FLOAT_MAX = float(np.finfo(np.float32).max)
_LEAST_SHARE = 1e-3
"""Share of all steps' cost below which bins add about the same cost instead of the same proportion."""
_HALVINGS = 50
_WIRE_ROUNDING = 3e-7


@dataclass(frozen=True, slots=True, eq=False)
class LevelSteps:
    """K bins of steps, in the order of their thresholds; each array has shape (K,).

    ``count`` is the number of steps in a bin, and ``threshold`` the mean of the scales c at which they are taken,
    weighted by cost. ``cost`` is Σ s·(n'-n) over the steps from n to n' polls per τ, with the cost s of one poll, and
    ``saving`` is Σ w·(1/n-1/n') with the weights w of the channels.
    """

    count: Floats
    threshold: Floats
    cost: Floats
    saving: Floats

    @classmethod
    def of(cls, problem: AllocationProblem, choices: LevelChoices) -> Self:
        """Return the steps of these channels in at most ``MAX_BINS`` bins."""
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
        """Return the steps in all these summaries in at most ``MAX_BINS`` bins."""
        if not parts:
            return cls(*(np.zeros(0) for _ in range(4)))
        fields = zip(*((part.count, part.threshold, part.cost, part.saving) for part in parts), strict=True)
        count, threshold, cost, saving = map(np.concatenate, fields)
        order = np.argsort(threshold, kind="stable")
        count, threshold, cost, saving = count[order], threshold[order], cost[order], saving[order]
        if len(count) <= MAX_BINS:
            return cls(count, threshold, cost, saving)
        mass = np.log1p(np.cumsum(cost) / max(float(cost.sum()) * _LEAST_SHARE, np.finfo(float).tiny))
        _, starts = np.unique((mass / mass[-1] * (MAX_BINS - 1)).astype(np.intp), return_index=True)
        count, weighted, total, saving = (
            np.add.reduceat(field, starts) for field in (count, threshold * cost, cost, saving)
        )
        return cls(count, weighted / total, total, saving)

    def encode(self) -> bytes:
        """Return the wire format that :func:`decode_steps` reads, 20 bytes per bin."""
        rows = np.empty(len(self.count), dtype=_ROW)
        for name in _ROW.names or ():
            rows[name] = getattr(self, name)
        rows["threshold"] = np.nextafter(rows["threshold"], np.float32(0))  # not above that of a single step
        return rows.tobytes()

    def scale_for_budget(self, lines: TradeoffClusters, budget: float) -> float:
        """Return the greatest scale at which all channels together cost at most ``budget`` per τ.

        ``lines`` are the channels' clusters for the sizes below their first step. If the budget does not suffice for
        the least of all channels, the result is negative, as for :func:`honeycomb.scale_for_budget`.
        """
        usable = lines.usable_budget(budget * (1 - BUDGET_MARGIN) if self.count.max(initial=1) > 1 else budget)
        problem = lines.to_problem()
        if float(lines.least_cost.sum()) >= usable or not len(self.count):
            return lines.scale_for_budget(budget)

        def exceeds(scale: float) -> bool:
            steps = float((self.cost * self._shares_taken(scale, at_most=True)).sum())
            return honeycomb.load(problem, honeycomb.sizes(problem, scale)) + steps > usable

        return _find_change(exceeds, np.concatenate((self.threshold, problem.least, problem.most)))[0]

    def scale_for_delay(self, lines: TradeoffClusters, delay_s: float, poll_interval_s: float) -> float:
        """Return the least scale at which the weighted mean delay of all channels is at most ``delay_s``.

        ``lines`` are the channels' clusters for the sizes below their first step, and ``poll_interval_s`` is τ. If the
        delay is unattainable, all channels reach their most at the resulting scale.
        """
        if not len(self.count):
            return lines.scale_for_delay(delay_s, poll_interval_s)
        problem = lines.to_problem()
        helpable = (problem.weights > 0) & (problem.most > 0)
        # The delay of all channels is τ/2 · Σ w/n / Σ w; in a cluster, Σ w/n is its weight divided by its size.
        allowed = float(lines.weight.sum()) * 2 * delay_s / poll_interval_s

        def suffices(scale: float) -> bool:
            with np.errstate(divide="ignore", invalid="ignore"):
                waiting = problem.weights / honeycomb.sizes(problem, scale)
            saved = float((self.saving * self._shares_taken(scale, at_most=False)).sum())
            return float(waiting.sum(where=helpable)) - saved <= allowed

        found = _find_change(suffices, np.concatenate((self.threshold, problem.least, problem.most)))[1]
        return found * (1 + _WIRE_ROUNDING)

    def _shares_taken(self, scale: float, *, at_most: bool) -> Floats:
        """Return the share of each bin's steps that are taken at this scale, at most or at least, shape (K,).

        At least one step of a bin is counted from the bin's start on if the result is what is taken ``at_most``, and
        not before the bin's end otherwise.
        """
        middles = (self.threshold[1:] + self.threshold[:-1]) / 2
        starts = np.concatenate((self.threshold[:1], middles))
        ends = np.concatenate((middles, self.threshold[-1:]))
        spread = (self.count > 1) & (ends > starts)
        shares = (scale - starts) / np.where(spread, ends - starts, 1.0)
        even = np.clip(shares, 0.0, 1.0) * (1 - 1 / self.count)
        begun = scale >= (starts if at_most else ends)
        return np.where(spread, even + begun / self.count, scale >= self.threshold)


def decode_steps(raw: bytes) -> LevelSteps | None:
    """Return the steps, or None if ``raw`` is not a valid summary.

    A summary is invalid if its length is wrong, if it has too many bins, if a number is negative, infinite or NaN, or
    if a bin is empty.
    """
    if len(raw) % BIN_BYTES or len(raw) > MAX_BINS * BIN_BYTES:
        return None
    rows = np.frombuffer(raw, dtype=_ROW)
    with np.errstate(invalid="ignore"):  # NaNs of the signalling kind
        found = LevelSteps(*(rows[name].astype(np.float64) for name in _ROW.names or ()))
    numbers = np.concatenate((found.threshold, found.cost, found.saving))
    sound = np.isfinite(numbers).all() and (numbers >= 0).all() and (found.count > 0).all()
    return LevelSteps.merge([found]) if sound else None


def _find_change(holds: Callable[[float], bool], points: Floats) -> tuple[float, float]:
    """Return two neighbouring scales, at the second of which ``holds`` becomes true; the greatest point if it does not.

    ``points`` are scales between which the change is located first. ``holds`` must be false at 0.
    """
    points = np.unique(np.append(points, 0.0))
    place = bisect_left(points, True, key=lambda scale: holds(float(scale)))
    if place == len(points):
        return float(points[-1]), float(points[-1])
    low, high = float(points[max(place - 1, 0)]), float(points[place])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high
