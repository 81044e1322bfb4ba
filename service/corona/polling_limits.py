"""Limits for the polls of one channel, set by its publisher or by failed polls.

There are three kinds:

- A *hint* is the poll interval that the publisher's documents and responses request.
- A *failure* limit is the longer interval of a channel whose polls fail.
- A *pause* forbids polls until a given time. The publisher requests it through ``Retry-After``, ``skipHours`` or
  ``skipDays``, or an admin sets it.

A node that polls the channel observes limits and reports them to the channel's owner, the node that plans its polls.
The owner includes the limits that it knows in each assignment of polls, so that nodes report only changes.
"""

from enum import StrEnum
from math import inf
from typing import Annotated

import msgspec

HINT_RISE = 1.1
"""A longer interval is reported if it is more than this multiple of the interval that the owner knows."""
HINT_FALL = 0.5
"""A shorter interval is reported if it is below this fraction of the interval that the owner knows.

Smaller differences are ignored, because publishers' hints vary with the age of cached responses.
"""
PAUSE_TOLERANCE_S = 5.0
"""Ends of pauses that differ by less count as equal."""

LimitSeconds = Annotated[int, msgspec.Meta(ge=0, le=8 * 86_400)]
"""An interval in whole seconds; 0 for no limit."""
LimitTime = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
"""A time by the store's clock in whole Unix seconds; 0 for none."""


class LimitReason(StrEnum):
    """The kind of limit on polls: the publisher's hint, a pause, or the longer interval after failed polls."""

    HINT = "hint"
    FAILURE = "failure"
    PAUSE = "pause"


class PollingLimits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The limits for the polls of one channel. They apply to all nodes together; 0 means that there is no limit.

    - ``hint_s``: the shortest interval between polls that the publisher requests, in seconds.
    - ``failure_s``: the shortest interval between polls while the polls fail, in seconds.
    - ``paused_until_s``: the end of a pause (Unix time by the store's clock).
    """

    hint_s: LimitSeconds = 0
    failure_s: LimitSeconds = 0
    paused_until_s: LimitTime = 0

    def shortest_interval(self, fleet_s: float, longest_pause_s: float = inf) -> tuple[float, LimitReason | None]:
        """Return (interval, reason): the shortest allowed interval between polls in seconds, and the kind of limit.

        If there are several limits, the one with the longest interval counts. The interval of a pause is its
        remaining time. If there is no limit, the result is (0.0, None).

        - ``fleet_s``: the present Unix time by the store's clock.
        - ``longest_pause_s``: upper limit of the interval of a pause, in seconds.
        """
        # The next poll is not before the end of the pause.
        paused_s = min(self.paused_until_s - fleet_s, longest_pause_s)
        longest_s = max(self.hint_s, self.failure_s, paused_s)
        if longest_s <= 0:
            return 0.0, None
        if longest_s == paused_s:
            return longest_s, LimitReason.PAUSE
        return float(longest_s), LimitReason.FAILURE if self.failure_s > self.hint_s else LimitReason.HINT

    def without_past_pause(self, fleet_s: float) -> "PollingLimits":
        """Return these limits, but without a pause that has ended by ``fleet_s`` (Unix time by the store's clock)."""
        is_past = 0 < self.paused_until_s <= fleet_s
        return msgspec.structs.replace(self, paused_until_s=0) if is_past else self

    def with_limit(self, reason: LimitReason, interval_s: int, until_s: int) -> "PollingLimits":
        """Return a copy of these limits in which the limit of kind ``reason`` is replaced.

        - ``interval_s``: the new shortest interval in seconds, or 0 to remove the limit; ignored for a pause.
        - ``until_s``: the end of the new pause (Unix time by the store's clock), or 0 to remove the pause; ignored for
          other kinds of limits.
        """
        value = until_s if reason is LimitReason.PAUSE else interval_s
        return msgspec.structs.replace(self, **{_FIELDS[reason]: value})

    def is_outdated(self, reason: LimitReason, interval_s: int, until_s: int, fleet_s: float) -> bool:
        """Return whether a newly observed limit of kind ``reason`` differs notably from the limit stored here.

        ``interval_s`` and ``until_s`` describe the observed limit, as for :meth:`with_limit`. ``fleet_s`` is the
        present Unix time by the store's clock.
        """
        if reason is LimitReason.PAUSE:
            return abs(max(until_s, fleet_s) - max(self.paused_until_s, fleet_s)) > PAUSE_TOLERANCE_S
        known_s = self.hint_s if reason is LimitReason.HINT else self.failure_s
        return not HINT_FALL * known_s <= interval_s <= HINT_RISE * known_s


_FIELDS = {LimitReason.HINT: "hint_s", LimitReason.FAILURE: "failure_s", LimitReason.PAUSE: "paused_until_s"}

NO_LIMITS = PollingLimits()
