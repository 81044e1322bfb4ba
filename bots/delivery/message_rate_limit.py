"""The rate limit on messages to one user (GCRA, a token bucket).

Items beyond the rate wait and are coalesced into one message; a message of many items delays the next message longer.
The whole state of the limit is one point in time: when the user's allowance is full again (the "theoretical arrival
time" of GCRA).
"""

from typing import Final

import msgspec

BURST: Final = 5
"""Maximum number of messages to one user that the rate limit allows at once."""
ITEMS_AT_USUAL_RATE: Final = 3
MAX_SLOWDOWN: Final = 6
"""Maximum factor by which a message of many items prolongs the delay before the next message. The factor for n items is
``max(1, n / ITEMS_AT_USUAL_RATE)``, up to this maximum."""


class MessageRateLimit(msgspec.Struct, frozen=True):
    """A limit of one message per ``interval_s`` seconds on average, and of ``BURST`` messages at once."""

    interval_s: float

    def after_message(self, full_at_s: float, item_count: int, now_s: float) -> float:
        """Return the state of a user's rate limit after a message of ``item_count`` items.

        ``full_at_s`` is the state before the message. The state is the time (monotonic s) at which the user's allowance
        is full again.
        """
        slowdown = min(max(1.0, item_count / ITEMS_AT_USUAL_RATE), MAX_SLOWDOWN)
        return max(full_at_s, now_s) + slowdown * self.interval_s

    def next_message_s(self, full_at_s: float) -> float:
        """Return the time (monotonic s) from which another message may be sent; ``full_at_s`` is the limit's state."""
        return full_at_s - (BURST - 1) * self.interval_s
