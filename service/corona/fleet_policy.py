"""What a fleet is to achieve, and at what cost, as far as the protocol must know; the shell provides it."""

from enum import StrEnum
from math import inf
from typing import Annotated

import msgspec

SOFT_STATE_INTERVALS = 3
"""After this many maintenance intervals without a word, soft state is forgotten (Corona §3.3)."""

SECONDS_PER_MINUTE = 60.0
SECONDS_PER_HOUR = 3600.0

PositiveNumber = Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)]
"""Nobody means what is less or more, and arithmetic with it would end in infinities."""


class Goal(StrEnum):
    """What to optimise; see ``goals``."""

    LITE = "lite"
    FAST = "fast"
    FAIR = "fair"
    FAIR_SQRT = "fair-sqrt"
    FAIR_LOG = "fair-log"

    @property
    def weighs_updates(self) -> bool:
        """Whether it matters how often a channel is updated."""
        return self not in {Goal.LITE, Goal.FAST}


class FleetObjective(msgspec.Struct, frozen=True, omit_defaults=True):
    """What admins can change while the fleet runs.

    All goals but Fast share out what subscribers would impose on publishers by themselves, one poll per τ each,
    where a channel counts as if it had at least ``polls_per_channel`` subscribers. Fast makes as few polls as give
    subscriptions a mean delay of ``delay_s``. ``budget_polls_per_minute`` caps either, for the whole fleet.
    No channel's mean wait is longer than ``longest_wait_s`` unless publishers, or that cap, allow no less.
    """

    goal: Goal = Goal.LITE
    polls_per_channel: PositiveNumber = 3.0
    budget_polls_per_minute: PositiveNumber | None = None
    delay_s: PositiveNumber = 60.0
    longest_wait_s: PositiveNumber = 43_200.0


class ChannelBounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """What admins want of one channel's planned polls, whatever the aims come to.

    Its mean wait is at most ``longest_wait_s``, in the place of the aims' longest wait; and no two of its polls are
    nearer than ``shortest_interval_s``, which goes before any longest wait. None leaves either to the aims.
    """

    longest_wait_s: PositiveNumber | None = None
    shortest_interval_s: PositiveNumber | None = None

    @property
    def contradict(self) -> bool:
        """Whether no poll interval keeps both: polls so far apart make for a longer mean wait."""
        longest_s, shortest_s = self.longest_wait_s, self.shortest_interval_s
        return longest_s is not None and shortest_s is not None and shortest_s > 2 * longest_s


NO_BOUNDS = ChannelBounds()


class FleetPolicy(msgspec.Struct, frozen=True):
    """The same on every node of a fleet.

    ``poll_interval_s`` is τ. ``max_polls_per_hour`` bounds the fleet's polls of one public channel, and
    ``site_requests_per_s`` those of all public channels of one site for which no admin set another rate.
    """

    poll_interval_s: float
    max_polls_per_hour: float
    maintenance_interval_s: float
    aims: FleetObjective = FleetObjective()
    site_requests_per_s: float = inf

    @property
    def silence_s(self) -> float:
        """How long an assignment lives that is not repeated."""
        return SOFT_STATE_INTERVALS * self.maintenance_interval_s
