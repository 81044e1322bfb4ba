"""The fleet's polling policy: its optimisation goal, constraints and intervals, as configured or set by admins."""

from enum import StrEnum
from math import inf, sqrt
from typing import Annotated

import msgspec

SOFT_STATE_INTERVALS = 3
"""Number of maintenance intervals after which information from other nodes expires unless it is renewed (Corona §3.3).
"""
CONFIRMATION_WAIT_INTERVALS = 0.6
"""Maximum time for which a confirmation of unchanged state waits for a request that carries it, in maintenance
intervals.

It is more than half an interval. Of two workers that each have confirmations for the other in every interval, only one
therefore has to send requests, whose responses contain the confirmations of the other.
"""

SECONDS_PER_MINUTE = 60.0
SECONDS_PER_HOUR = 3600.0

PositiveNumber = Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)]
"""A number from 0.001 to 10⁹. These bounds exclude meaningless settings and keep the arithmetic finite."""


class Goal(StrEnum):
    """The optimisation goals of Corona (§3.2, Table 1)."""

    LITE = "lite"
    FAST = "fast"
    FAIR = "fair"
    FAIR_SQRT = "fair-sqrt"
    FAIR_LOG = "fair-log"

    @property
    def depends_on_updates(self) -> bool:
        """Whether a channel's importance under this goal depends on the time between its updates."""
        return self not in {Goal.LITE, Goal.FAST}


class Levels(StrEnum):
    """A rule for how many nodes may poll one channel together.

    - ``CONTINUOUS``: any number of nodes. A channel can then have any number of polls per poll interval τ.
    - ``BASE_2``, ``BASE_4``, ``BASE_16``: only the group sizes that result from Corona's *polling levels* (§3.1).
      The group of a channel at level l consists of all nodes whose ids begin with the same l digits (in this
      base) as the channel's id.
    """

    CONTINUOUS = "continuous"
    BASE_2 = "2"
    BASE_4 = "4"
    BASE_16 = "16"

    @property
    def are_whole(self) -> bool:
        """Whether only Corona's polling levels are allowed, rather than any number of nodes."""
        return self is not Levels.CONTINUOUS

    @property
    def base(self) -> int:
        """The number base of the id digits that define the polling levels; 2 for ``CONTINUOUS``."""
        return 2 if self is Levels.CONTINUOUS else int(self)


class FleetObjective(msgspec.Struct, frozen=True):
    """The optimisation goal and its constraints, which admins can change while the fleet runs.

    - ``goal``: the optimisation goal.
    - ``demand_factor``: the total load of all polls under every goal except Fast, as a multiple of the *demand*. The
      demand is the load of one poll per subscriber and poll interval. For each public channel, it is limited to spare
      the publisher (``node_allocation.channel_demands``). With a factor of 1 or more, all public channels can be
      polled as often as these limits allow.
    - ``budget_polls_per_minute``: limit on the polls of the whole fleet, whatever the goal; None for no limit.
    - ``delay_s``: the mean delay per subscription, in seconds, that the goal Fast achieves with as little load as
      possible.
    - ``longest_wait_s``: upper limit of each channel's mean time from an update to its detection, in seconds. It
      can be exceeded because of a publisher's limits, or if keeping to it would take more than a quarter of the
      budget.
    - ``levels``: the rule for how many nodes may poll one channel together.
    """

    goal: Goal = Goal.FAIR
    demand_factor: PositiveNumber = 0.45
    budget_polls_per_minute: PositiveNumber | None = None
    delay_s: PositiveNumber = 60.0
    longest_wait_s: PositiveNumber = 3_600.0
    levels: Levels = Levels.CONTINUOUS


class ChannelBounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits that admins have set for the polls of one channel, in seconds.

    - ``longest_wait_s``: upper limit of the mean time from an update to its detection; None to use the limit of the
      whole fleet.
    - ``shortest_interval_s``: the minimum time between two polls of the channel; None for no minimum. This minimum
      takes precedence over ``longest_wait_s``.
    """

    longest_wait_s: PositiveNumber | None = None
    shortest_interval_s: PositiveNumber | None = None

    @property
    def are_contradictory(self) -> bool:
        """Whether no poll interval can satisfy both limits.

        That is the case if half of ``shortest_interval_s`` exceeds ``longest_wait_s``, because an update waits for half
        a poll interval on average.
        """
        longest_s, shortest_s = self.longest_wait_s, self.shortest_interval_s
        return longest_s is not None and shortest_s is not None and shortest_s > 2 * longest_s


NO_BOUNDS = ChannelBounds()


class FleetPolicy(msgspec.Struct, frozen=True):
    """The polling policy, identical on all nodes of a fleet.

    - ``poll_interval_s``: τ, the interval in seconds at which one node polls a channel.
    - ``max_polls_per_hour``: limit on the fleet's polls of one public channel, however many subscribers it has.
    - ``maintenance_interval_s``: the interval in seconds at which nodes confirm who polls what.
    - ``objective``: the optimisation goal and its constraints.
    - ``site_requests_per_s``: limit on the polls of all public channels of one site together; admins may set a
      different limit for individual sites.
    - ``weekly_rhythm``: whether a channel is polled more often in the hours of the week in which it usually publishes.
    - ``polls_per_hour_for_one_subscriber``: limit on the polls of a public channel with one subscriber. The limits for
      more subscribers are derived from it (:meth:`most_polls_per_hour`).
    - ``most_polls_per_node``: how often one node may poll one channel per τ; 1 in the paper. A node polls more often if
      the channel's longest wait requires it.
    - ``affordable_wait_s``: the shortest mean time from an update to its detection that the budget can guarantee for
      every channel, in seconds; 0 without a budget. If it is longer than ``objective.longest_wait_s``, it replaces that
      limit (``node_allocation.affordable_policy``).
    """

    poll_interval_s: float
    max_polls_per_hour: float
    maintenance_interval_s: float
    objective: FleetObjective = FleetObjective()
    site_requests_per_s: float = inf
    weekly_rhythm: bool = True
    polls_per_hour_for_one_subscriber: float = inf
    most_polls_per_node: float = 1.0
    affordable_wait_s: float = 0.0

    @property
    def longest_wait_s(self) -> float:
        """The upper limit of a channel's mean time from an update to its detection, in seconds.

        It is the limit set in the objective, or a longer one if the budget does not allow that limit. Admins may have
        set different limits for individual channels.
        """
        return max(self.objective.longest_wait_s, self.affordable_wait_s)

    @property
    def soft_state_ttl_s(self) -> float:
        """The time in seconds after which information about other nodes expires unless these nodes confirm it."""
        return SOFT_STATE_INTERVALS * self.maintenance_interval_s

    def most_polls_per_hour(self, subscribers: int) -> float:
        """Return how many times per hour a public channel may be polled, out of consideration for its publisher.

        The limit grows with the square root of the number of ``subscribers`` (0 counts as 1), up to
        ``max_polls_per_hour``. By default, it is 4 for one subscriber, 12.6 for 10, 40 for 100, and 120 for 900 or
        more.
        """
        # The more subscribers a channel has, the fewer requests per subscriber its publisher receives. If all
        # subscribers used readers of their own, each would cause as many requests as the first.
        return min(self.polls_per_hour_for_one_subscriber * sqrt(max(subscribers, 1)), self.max_polls_per_hour)


DEFAULT_POLICY = FleetPolicy(
    poll_interval_s=900.0,
    max_polls_per_hour=120.0,
    maintenance_interval_s=10.0,
    site_requests_per_s=1.0,
    polls_per_hour_for_one_subscriber=4.0,
    most_polls_per_node=4.0,
)
"""The policy of a fleet with the default settings.

A node polls a channel up to four times in τ = 900 s, so a publisher sees requests from one address at most every 225 s.
With one poll per τ, as in Corona §3.1, a fleet of a single worker would poll all channels equally often, whatever its
budget.
"""
