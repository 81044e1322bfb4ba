"""The fleet's polling policy: optimisation goal, constraints and intervals, as the settings and admins define them."""

from enum import StrEnum
from math import inf
from typing import Annotated

import msgspec

SOFT_STATE_INTERVALS = 3
"""Number of maintenance intervals after which soft state that has not been repeated expires (Corona §3.3)."""

SECONDS_PER_MINUTE = 60.0
SECONDS_PER_HOUR = 3600.0

PositiveNumber = Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)]
"""Bounds that exclude meaningless settings and keep the arithmetic finite."""


class Goal(StrEnum):
    """The optimisation goals of Corona (§3.2, Table 1); ``objectives`` has their formulas."""

    LITE = "lite"
    FAST = "fast"
    FAIR = "fair"
    FAIR_SQRT = "fair-sqrt"
    FAIR_LOG = "fair-log"

    @property
    def depends_on_updates(self) -> bool:
        """Whether the goal gives a channel a weight that depends on how often the channel is updated."""
        return self not in {Goal.LITE, Goal.FAST}


class Levels(StrEnum):
    """Which numbers of nodes may poll a channel, and how often.

    With ``CONTINUOUS`` a channel may have any number n of polls per τ. The others are the polling levels of Corona
    (§3.1) in a number system of this base: at level l, the nodes whose ids begin with the same l digits as the
    channel's id, its *wedge*, poll it, each once per τ (:mod:`service.corona.polling_levels`).
    """

    CONTINUOUS = "continuous"
    BASE_2 = "2"
    BASE_4 = "4"
    BASE_16 = "16"

    @property
    def base(self) -> int:
        """The base of the number system in which levels are counted: 2 if n is continuous."""
        return 2 if self is Levels.CONTINUOUS else int(self)


class FleetObjective(msgspec.Struct, frozen=True, omit_defaults=True):
    """The optimisation goal and its constraints, which admins can change while the fleet runs.

    All goals except Fast limit the load to what subscribers would cause by polling on their own, each once per τ (the
    poll interval of :class:`FleetPolicy`); a channel counts as if it had at least ``polls_per_channel`` subscribers.
    Fast minimises the load at a mean delay of ``delay_s`` per subscription. ``budget_polls_per_minute`` limits the
    whole fleet under any goal; None means no limit. No channel's mean wait exceeds ``longest_wait_s``, unless this
    budget or the limits of publishers require it. ``levels`` restricts the numbers of polls to whole polling levels.
    """

    goal: Goal = Goal.LITE
    polls_per_channel: PositiveNumber = 3.0
    budget_polls_per_minute: PositiveNumber | None = None
    delay_s: PositiveNumber = 60.0
    longest_wait_s: PositiveNumber = 43_200.0
    levels: Levels = Levels.CONTINUOUS


class ChannelBounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits that admins have set for the polls of one channel; None means that the fleet's objective applies.

    ``longest_wait_s`` replaces the objective's longest mean wait for this channel. ``shortest_interval_s`` is the least
    time between two polls of the channel and takes precedence over any longest wait.
    """

    longest_wait_s: PositiveNumber | None = None
    shortest_interval_s: PositiveNumber | None = None

    @property
    def are_contradictory(self) -> bool:
        """Whether no poll interval keeps both limits.

        A channel's mean wait is half its poll interval. The limits contradict each other if half the shortest interval
        exceeds the longest mean wait.
        """
        longest_s, shortest_s = self.longest_wait_s, self.shortest_interval_s
        return longest_s is not None and shortest_s is not None and shortest_s > 2 * longest_s


NO_BOUNDS = ChannelBounds()


class FleetPolicy(msgspec.Struct, frozen=True):
    """The polling policy, identical on all nodes of a fleet.

    ``poll_interval_s`` is τ, the interval in seconds at which one node polls a channel. ``maintenance_interval_s`` is
    the time after which owners repeat their assignments. ``max_polls_per_hour`` limits the fleet's polls of one public
    channel. ``site_requests_per_s`` limits the polls of all public channels of one site, unless admins have set another
    rate for the site. With ``weekly_rhythm``, polls follow the learnt rhythm of each channel.
    """

    poll_interval_s: float
    max_polls_per_hour: float
    maintenance_interval_s: float
    objective: FleetObjective = FleetObjective()
    site_requests_per_s: float = inf
    weekly_rhythm: bool = True

    @property
    def soft_state_ttl_s(self) -> float:
        """The time in seconds after which soft state that is not repeated, such as an assignment, expires."""
        return SOFT_STATE_INTERVALS * self.maintenance_interval_s
