"""The back-off of a failing channel: the longer its polls have failed, the less often it is polled.

The back-off is the shortest interval between polls of a failing channel. It is the time f for which the channel has
failed so far, at most ``LONGEST_BACKOFF_S``. A recovery is therefore detected after at most twice the duration of the
failure.

The time between two failed polls counts only in part, because the channel may have worked in between: a failed poll t
seconds after the previous one increases f by min(t, max(f, ``FIRST_BACKOFF_S``)). Failures that this node's own network
may have caused do not increase f.

Several nodes poll a channel; therefore the store's script ``channel_record_poll`` adds up f. ``channel_health`` decides
when a failing channel counts as dead.
"""

from service.feeds.channel_health import DAY_S

FIRST_BACKOFF_S = 900.0
"""The first interval between two failed polls increases the back-off by at most this time."""
LONGEST_BACKOFF_S = DAY_S
