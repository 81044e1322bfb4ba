"""The fleet's *scale* c, from which all polling rates follow, as one node computes it (Corona §3.2-3.3).

A node computes c while it has the summaries of the channels of all nodes. If some of them are missing for too long (the
lifetime of soft state), it computes c without them. While neither the summaries nor the policy change, c is not
computed again.

After a node has joined or left, c is kept unchanged for one maintenance interval. Why: channels that change owners are
in no summary until their new owners have acquired them. Without this wait, all polling rates would change and soon
change back.
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
    """The fleet's *scale* c, a number from which all polling rates follow, as one node computes it.

    Between its bounds, each channel has c·√(weight/cost) polls per poll interval τ. The inputs are the member nodes,
    the policy, and all nodes' summaries of their channels. ``now_s`` is monotonic time in seconds.
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
        """The number of nodes of the fleet, at least 1."""
        return max(1, len(self._view.nodes))

    @property
    def applied_levels(self) -> Levels:
        """The allowed numbers of nodes per channel (polling levels) for which the scale was computed last.

        Schedules are computed for these numbers.
        """
        return self._levels or self.policy.objective.levels

    def set_objective(self, objective: FleetObjective) -> None:
        """Adopt ``objective``; the next :meth:`solve` computes a scale for it.

        After a node has joined or left, the scale normally stays unchanged for one maintenance interval. A new
        objective ends this interval at once.
        """
        self._apply_policy(msgspec.structs.replace(self.policy, objective=objective))
        self.has_changed = True
        self._frozen_until_s = None

    def on_ring_changed(self, view: RingView, now_s: float) -> None:
        """Adopt the member nodes ``view``, and keep the scale unchanged for one maintenance interval."""
        if self.scale is not None and self._frozen_until_s is None:
            self._frozen_until_s = now_s + self.policy.maintenance_interval_s
        self._view, self._wedges, self.is_current = view, None, False
        self.aggregation.on_ring_changed(view)
        self.has_changed = True

    def solve(self, now_s: float) -> bool:
        """Compute the fleet's scale; return whether its change requires that all schedules are updated.

        Between its bounds, a channel has scale·√(weight/cost) polls per poll interval τ. After a change of the allowed
        polling levels, the former scale and levels are used until all nodes have sent summaries for the new levels.
        """
        # A scale is valid only for the levels for which it was solved.
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
        """Return whether the scale, the member nodes or the policy have changed since the last call.

        If so, the caller has to compare all schedules with the new values.
        """
        if not self.has_changed:
            return False
        self.has_changed, self._compared = False, self.scale
        return True

    def choices(self, channels: Sequence[ChannelId], levels: Levels) -> LevelChoices | None:
        """Return the numbers of nodes that may poll each of these channels, one for each polling level 0, 1, 2, ….

        The result is None if ``levels`` allows any number.
        """
        if not levels.are_whole:
            return None
        if self._wedges is None or self._wedges.base != levels.base:
            self._wedges = RingLevels(self._view, levels.base)
        return self._wedges.choices(channels)

    def _apply_policy(self, policy: FleetPolicy) -> None:
        """Adopt ``policy``; if the budget cannot pay for the objective's longest wait, replace this by a longer one."""
        # The polls that a longest wait requires depend on the fleet's number of channels.
        fleet = self.aggregation.fleet()
        channels = round(fleet.channels * self.nodes / fleet.nodes)
        policy = node_allocation.affordable_policy(policy, channels)
        if not _is_close(self.policy.longest_wait_s, policy.longest_wait_s, GAP_TOLERANCE):
            self.has_changed = True
        elif policy.objective == self.policy.objective:
            return
        self.policy = policy


def _is_close(before: float | None, after: float, tolerance: float) -> bool:
    """Return whether ``before`` is not None and ``after`` differs from it by at most the share ``tolerance``."""
    return before is not None and abs(after - before) <= tolerance * abs(before)
