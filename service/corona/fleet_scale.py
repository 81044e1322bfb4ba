"""One node's computation of the fleet's *scale* c, a factor that determines all polling rates (Corona §3.2-3.3).

A node computes c from summaries of the channels of all nodes. If some summaries are missing, it waits for them, but no
longer than the lifetime of soft state (three maintenance intervals); then it computes c without them. It computes c
again only if the summaries or the policy have changed.

After a node has joined or left, c stays unchanged for one maintenance interval. During this time, channels that change
owners are missing from all summaries until their new owners have acquired them. Without the wait, all polling rates
would change and soon change back.
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
"""Relative amount by which a schedule's time between polls may differ from the optimum before it is replaced.

Without this tolerance, every new subscriber of any channel would cause new schedules.
"""
SUMMARY_TOLERANCE = 1e-3
"""Relative change of the polls of a node's channels above which the node's aggregate is computed again.

Until then, the fleet's load can exceed the budget by this share, which is a tenth of ``GAP_TOLERANCE``.
"""


class FleetScale:
    """The fleet's *scale* c, a factor that determines all polling rates, as computed by one node.

    Each channel has c·√(weight/cost) polls per poll interval τ, within its own minimum and maximum. c is computed from
    the list of member nodes, the policy, and all nodes' summaries of their channels. In all methods, ``now_s`` is
    monotonic time in seconds.
    """

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self.policy = policy
        """The policy, with the longest wait that the fleet's budget can pay for."""
        self.aggregation = Aggregation(node_id, policy.soft_state_ttl_s)
        self.scale: float | None = None
        """c; None until it has been computed for the first time."""
        self.is_current = True
        """Whether c was computed for the present ring."""
        self.has_changed = False
        """Whether the scale, the ring or the policy has changed since the last call of :meth:`take_change`."""
        self._view = RingView(0, ())
        self._wedges: RingLevels | None = None
        """The polling levels of the present ring; None if they have not been needed yet."""
        self._applied: float | None = None
        """The value of c from which all schedules were last computed."""
        self._compared: float | None = None
        """The value of c with which all schedules were last compared."""
        self._levels: Levels | None = None
        """The polling levels for which c was computed; None until it has been computed for the first time."""
        self._last_complete_s: float | None = None
        """Monotonic time at which the fleet's aggregate last covered all nodes."""
        self._frozen_until_s: float | None = None
        """The time until which c stays unchanged after a change of the ring; None if c has been computed since then."""
        self._solved: tuple[Aggregate, FleetPolicy, int] | None = None
        """The inputs from which c was last computed: the fleet's aggregate, the policy and the number of nodes."""

    @property
    def nodes(self) -> int:
        """The number of nodes in the fleet, at least 1."""
        return max(1, len(self._view.nodes))

    @property
    def applied_levels(self) -> Levels:
        """The setting ``levels`` (how many nodes may poll one channel together) for which the scale was last computed.

        Schedules are computed for this setting. It can differ from the setting in the policy until all nodes have
        adopted a change.
        """
        return self._levels or self.policy.objective.levels

    def set_objective(self, objective: FleetObjective) -> None:
        """Adopt ``objective``; the next :meth:`solve` computes a scale for it.

        After a node has joined or left, the scale stays unchanged for one maintenance interval. This method ends that
        wait.
        """
        self._apply_policy(msgspec.structs.replace(self.policy, objective=objective), self.aggregation.fleet())
        self.has_changed = True
        self._frozen_until_s = None

    def on_ring_changed(self, view: RingView, now_s: float) -> None:
        """Adopt ``view`` as the members of the ring, and keep the scale unchanged for one maintenance interval."""
        if self.scale is not None and self._frozen_until_s is None:
            self._frozen_until_s = now_s + self.policy.maintenance_interval_s
        self._view, self._wedges, self.is_current = view, None, False
        self.aggregation.on_ring_changed(view)
        self.has_changed = True

    def solve(self, now_s: float) -> bool:
        """Compute the fleet's scale; return whether it has changed so much that all schedules have to be updated.

        After an admin has changed the allowed polling levels, the former scale and levels are used until all nodes have
        sent summaries for the new levels.
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
            self._apply_policy(self.policy, fleet)
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
        """Return whether the scale, the member nodes or the policy have changed since the last call of this method.

        If so, the caller has to check whether schedules need to be updated.
        """
        if not self.has_changed:
            return False
        self.has_changed, self._compared = False, self.scale
        return True

    def choices(self, channels: Sequence[ChannelId], levels: Levels) -> LevelChoices | None:
        """Return how many nodes may poll each of ``channels`` at each polling level (0, 1, 2, …).

        The result is None if ``levels`` allows any number of nodes.
        """
        if not levels.are_whole:
            return None
        if self._wedges is None or self._wedges.base != levels.base:
            self._wedges = RingLevels(self._view, levels.base)
        return self._wedges.choices(channels)

    def _apply_policy(self, policy: FleetPolicy, fleet: Aggregate) -> None:
        """Adopt ``policy``; if the budget does not allow the objective's longest wait, use a longer one instead.

        ``fleet`` is the summary of all channels.
        """
        # The polls that a longest wait requires depend on the fleet's number of channels.
        channels = round(fleet.channels * self.nodes / fleet.nodes)
        policy = node_allocation.affordable_policy(policy, channels)
        if not _is_close(self.policy.longest_wait_s, policy.longest_wait_s, GAP_TOLERANCE):
            self.has_changed = True
        elif policy.objective == self.policy.objective:
            return
        self.policy = policy


def _is_close(before: float | None, after: float, tolerance: float) -> bool:
    """Return whether ``after`` differs from ``before`` by at most the fraction ``tolerance`` of ``before``.

    The result is False if ``before`` is None.
    """
    return before is not None and abs(after - before) <= tolerance * abs(before)
