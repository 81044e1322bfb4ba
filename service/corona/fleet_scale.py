"""One node's solution for the fleet's scale c, from which all channels' polling rates follow (Corona §3.2-3.3).

A node solves for c while it has the aggregates (summaries of their channels) of all nodes. If some of these have been
missing for the lifetime of soft state, the node solves for c without them. After a change of the ring, c is frozen,
that is, kept unchanged, for one maintenance interval. Channels that change owners are in no aggregate until their new
owners have acquired them: without the freeze, all polling sets would change and soon change back. While neither the
aggregates nor the policy change, c is not computed again.
"""

from collections.abc import Sequence

import msgspec

from service.corona.aggregation import Aggregation
from service.corona.fleet_policy import FleetObjective, FleetPolicy, Levels
from service.corona.messages import Aggregate
from service.corona.optimizer import node_allocation
from service.corona.optimizer.polling_levels import LevelChoices, RingLevels
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView

LEVEL_TOLERANCE = 1e-4
"""Relative change of the scale above which all schedules are updated, if only whole polling levels are allowed.

Even a small change of the scale can move many channels to another level.
"""
GAP_TOLERANCE = 0.01
"""Relative difference up to which a schedule's time between polls may differ from the optimum before it is replaced.

Without this tolerance, every new subscriber of any channel would cause new schedules.
"""
SUMMARY_TOLERANCE = 1e-3
"""Relative change of the polls of a node's channels above which the node's aggregate is computed again.

Until then, the fleet's load can exceed the budget by this share, which is a tenth of ``GAP_TOLERANCE``.
"""


class FleetScale:
    """The fleet's *scale* c, as one node computes it.

    Between its bounds, each channel has c·√(weight/cost) polls per τ. The inputs are the ring, the policy and all
    nodes' aggregates (summaries of their channels). ``now_s`` is monotonic time in seconds.
    """

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self.policy = policy
        """The policy, with the longest wait that the fleet's budget can pay for."""
        self.aggregation = Aggregation(node_id, policy.soft_state_ttl_s)
        self.scale: float | None = None
        """c; None before its first solution."""
        self.is_current = True
        """Whether c was solved for the present ring."""
        self.has_changed = False
        """Whether the scale, the ring or the policy has changed since :meth:`take_change`."""
        self._view = RingView(0, ())
        self._wedges: RingLevels | None = None
        """The polling levels of the ring, if only whole levels were allowed when they were last needed."""
        self._applied: float | None = None
        """The c by which all schedules were computed last."""
        self._compared: float | None = None
        """The c with which all schedules were last compared."""
        self._levels: Levels | None = None
        """The polling levels for which c was solved; None before its first solution."""
        self._last_complete_s: float | None = None
        """Monotonic time at which the fleet's aggregate last covered all nodes."""
        self._frozen_until_s: float | None = None
        """The time until which c is frozen after a change of the ring; None if c has been solved for since then."""
        self._solved: tuple[Aggregate, FleetPolicy, int] | None = None
        """The fleet, policy and number of nodes for which c was solved last."""

    @property
    def nodes(self) -> int:
        """The number of nodes of the ring, at least 1."""
        return max(1, len(self._view.nodes))

    @property
    def applied_levels(self) -> Levels:
        """The polling levels for which the scale was solved last, by which schedules are computed."""
        return self._levels or self.policy.objective.levels

    def set_objective(self, objective: FleetObjective) -> None:
        """Use ``objective`` from the next solution on, and end a freeze of the scale."""
        self._apply_policy(msgspec.structs.replace(self.policy, objective=objective))
        self.has_changed = True
        self._frozen_until_s = None

    def on_ring_changed(self, view: RingView, now_s: float) -> None:
        """Adopt the ring ``view``, and freeze the scale (keep it unchanged) for one maintenance interval."""
        if self.scale is not None and self._frozen_until_s is None:
            self._frozen_until_s = now_s + self.policy.maintenance_interval_s
        self._view, self._wedges, self.is_current = view, None, False
        self.aggregation.on_ring_changed(view)
        self.has_changed = True

    def solve(self, now_s: float) -> bool:
        """Compute the fleet's scale; return whether all schedules have to be updated because of its change.

        Between its bounds, a channel has scale·√(weight/cost) polls per τ. After a change of the allowed polling
        levels, the former scale and levels are used until all nodes have sent aggregates for the new levels, because a
        scale is valid only for the levels for which it was solved.
        """
        fleet, levels = self.aggregation.fleet(), self.policy.objective.levels
        is_complete = (
            self.aggregation.own is not None
            and fleet.nodes == self.nodes
            and fleet.base == node_allocation.aggregate_base(levels)
        )
        if self._last_complete_s is None or is_complete:
            self._last_complete_s = now_s
        is_known = is_complete or now_s - self._last_complete_s >= self.policy.soft_state_ttl_s
        moved = False
        if is_known and (self._frozen_until_s is None or now_s >= self._frozen_until_s):
            self._frozen_until_s = None
            self._apply_policy(self.policy)
            problem = fleet, self.policy, self.nodes
            if self._solved is None or self._solved[0] is not fleet or self._solved[1:] != problem[1:]:
                self.scale, self._solved = node_allocation.solve_scale(self.policy, self.nodes, fleet), problem
            moved = levels is not self._levels or (levels.are_whole and not self.is_current)
            self._levels, self.is_current = levels, True
        if self.scale is None:
            return False
        tolerance = LEVEL_TOLERANCE if levels.are_whole else GAP_TOLERANCE
        moved |= not _is_close(self._applied, self.scale, tolerance)
        if moved:
            self._applied = self.scale
        # The scale is often close below the threshold of a level, and the polls beyond it may exceed the budget.
        if moved or not _is_close(self._compared, self.scale, 0.0 if levels.are_whole else SUMMARY_TOLERANCE):
            self.has_changed = True
        return moved

    def take_change(self) -> bool:
        """Return whether the scale, the ring or the policy has changed since the last call, and reset this state.

        If the result is true, the caller has to compare all schedules with the new values.
        """
        if not self.has_changed:
            return False
        self.has_changed, self._compared = False, self.scale
        return True

    def choices(self, channels: Sequence[ChannelId], levels: Levels) -> LevelChoices | None:
        """Return the wedges of these channels: the number of nodes that poll each channel at the levels 0, 1, 2, ….

        A channel's polling set is one of its wedges. The result is None if ``levels`` are continuous.
        """
        if not levels.are_whole:
            return None
        if self._wedges is None or self._wedges.base != levels.base:
            self._wedges = RingLevels(self._view, levels.base)
        return self._wedges.choices(channels)

    def _apply_policy(self, policy: FleetPolicy) -> None:
        """Adopt ``policy``, with a longer longest wait if the budget cannot pay for the objective's longest wait.

        The polls that a longest wait requires depend on the fleet's number of channels.
        """
        fleet = self.aggregation.fleet()
        channels = round(fleet.channels * self.nodes / fleet.nodes)
        policy = node_allocation.affordable_policy(policy, channels)
        if not _is_close(self.policy.longest_wait_s, policy.longest_wait_s, GAP_TOLERANCE):
            self.has_changed = True
        elif policy.objective == self.policy.objective:
            return
        self.policy = policy


def _is_close(before: float | None, after: float, tolerance: float) -> bool:
    """Return whether ``before`` is not None and ``after`` differs from it by at most this relative tolerance."""
    return before is not None and abs(after - before) <= tolerance * abs(before)
