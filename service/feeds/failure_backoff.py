"""The back-off of a failing channel: the longer its polls have failed, the less often it is polled.

The shortest interval between polls of a failing channel is the time for which its polls have failed so far, at most
``LONGEST_BACKOFF_S``. A recovery is therefore detected after at most twice the duration of the failure. Each interval
between two failed polls adds at most the time so far, or ``FIRST_BACKOFF_S`` if that is longer, because the channel may
have worked in between. Failures that this node's own network may have caused add nothing.

The script ``channel_record_poll`` of the store adds up the time, because several nodes poll a channel.
``channel_health`` decides when a failing channel counts as dead.
"""

from service.feeds.channel_health import DAY_S

FIRST_BACKOFF_S = 900.0
"""What an interval between two failed polls may add to the back-off, if the polls failed for less time so far."""
LONGEST_BACKOFF_S = DAY_S
