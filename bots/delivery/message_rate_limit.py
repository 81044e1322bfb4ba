"""The rate limit on messages to one user: the generic cell rate algorithm (GCRA), a form of token bucket.

Items that exceed the rate wait and are combined into one message. The more items a message contains, the longer the
next message is delayed. The limit's whole state is a single point in time: when the user's allowance will be full again
(the "theoretical arrival time" of GCRA).
"""

from typing import Final

import msgspec

BURST: Final = 5
"""Maximum number of messages to one user that the rate limit allows at once."""
ITEMS_AT_USUAL_RATE: Final = 3
MAX_SLOWDOWN: Final = 6
"""Maximum factor by which a message with many items prolongs the delay before the next message. The factor for n items
is ``max(1, n / ITEMS_AT_USUAL_RATE)``, up to this maximum."""


class MessageRateLimit(msgspec.Struct, frozen=True):
    """A limit of one message per ``interval_s`` seconds on average, with bursts of up to ``BURST`` messages."""

    interval_s: float

    def after_message(self, full_at_s: float, item_count: int, now_s: float) -> float:
        """Return when a user's allowance is full again after a message of ``item_count`` items is sent at ``now_s``.

        The allowance is the number of messages that the user can be sent at once. A full allowance is ``BURST``
        messages. ``full_at_s`` is when the allowance would be full without this message: the last result of this
        method, or -infinity before the first message. All times are in seconds of the monotonic clock.
        """
        slowdown = min(max(1.0, item_count / ITEMS_AT_USUAL_RATE), MAX_SLOWDOWN)
        return max(full_at_s, now_s) + slowdown * self.interval_s

    def next_message_s(self, full_at_s: float) -> float:
        """Return the earliest time at which another message may be sent to the user.

        ``full_at_s`` is the last result of :meth:`after_message`, or -infinity before the first message. Both times
        are in seconds of the monotonic clock.
        """
        return full_at_s - (BURST - 1) * self.interval_s
