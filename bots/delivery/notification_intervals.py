"""Notification intervals: the minimum time between two messages about one channel to a user.

An item that is queued within the interval waits until the interval has passed since the channel's last message. Quiet
hours and digests apply to all channels of a user; see :mod:`bots.delivery.recipient_availability`.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

import msgspec

from bots.delivery.recipient_cache import Recipient
from service.model import ChannelId
from service.store.delivery.outbox import ANNOUNCEMENTS, QueuedItem, Suppressions
from service.users.preferences import effective_interval_s

DIGEST_TOLERANCE_S: Final = 600
"""Time subtracted from the notification interval of a user who receives digests. Without this tolerance, items with an
interval of one day would miss the next daily digest whenever the previous digest was sent slightly late."""
MAX_DUE_ITEMS: Final = 100
"""Maximum number of a user's due items examined before a claim. If all of these items are suppressed, the user is
scheduled again."""


def earliest_send_s(queued_s: float, last_message_s: float | None, interval_s: float) -> float:
    """Return the earliest time (Unix s) at which an item may be sent to a user.

    An item is an element of the user's outbox, and refers to changes of one channel. It was queued at ``queued_s``. It
    waits until ``interval_s`` seconds have passed since ``last_message_s``, the time of the last message to the user
    about this channel (None if there was none). An item that was queued before that message, but did not fit into it,
    does not wait.
    """
    if last_message_s is None or queued_s <= last_message_s:
        return queued_s
    return max(queued_s, last_message_s + interval_s)


class Selection(msgspec.Struct):
    """The decision about one user's oldest items. Times are Unix s.

    - ``recipient``: the user's settings.
    - ``last_sent_s``: the time of the last items sent to the user, for each channel with a notification interval
      (minimum time between messages).
    - ``suppressions``: for each item, by its id in the queue, the positions of its changes to omit, "later" if it must
      wait, or None if it is dropped.
    - ``interval_channels``: the channels with a notification interval.
    - ``since_s``: the time when the first due item became due; None if no item is due.
    - ``next_due_s``: the earliest time when a delayed item becomes due; infinity if no notification interval delays an
      item.
    - ``due_count``: number of due items.
    - ``numbers``: the numbers of the user's subscriptions, by channel.
    """

    recipient: Recipient
    last_sent_s: Mapping[ChannelId, float]
    suppressions: Suppressions = {}
    interval_channels: set[ChannelId] = set()
    since_s: float | None = None
    next_due_s: float = inf
    due_count: int = 0
    numbers: dict[ChannelId, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether the limit on due items is reached; the user may then have more items, which were not examined."""
        return self.due_count == MAX_DUE_ITEMS

    def count_if_due(self, queued: QueuedItem, now_s: float) -> bool:
        """Return whether an item is due, that is, the notification interval of its channel has passed.

        A due item is counted. For any other item, the time when it becomes due is recorded in ``next_due_s``.
        """
        channel_id = queued.item.channel
        can_have_interval = not queued.item.matches and channel_id != ANNOUNCEMENTS
        interval_s = 0.0
        if can_have_interval:
            interval_s = effective_interval_s(self.recipient.preferences, self.numbers[channel_id])
            if self.recipient.user_settings.digest is not None:
                interval_s = max(0.0, interval_s - DIGEST_TOLERANCE_S)
        due_s = earliest_send_s(queued.queued_s, self.last_sent_s.get(channel_id), interval_s)
        if interval_s > 0:
            self.interval_channels.add(channel_id)
        if due_s > max(now_s, queued.queued_s):
            self.next_due_s = min(self.next_due_s, due_s)
            return False
        self.since_s = due_s if self.since_s is None else min(self.since_s, due_s)
        self.due_count += 1
        return True
