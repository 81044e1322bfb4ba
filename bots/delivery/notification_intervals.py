"""Notification intervals, the minimum time between two messages to a user about the same channel, and folders' digests.

An item that is queued too early waits until the interval has passed since the last message about its channel. If a
folder has a digest setting of its own, each item then waits for the first digest, of its folder or of the user, that is
due after this time. In contrast, quiet hours, and the user's digests without such folders, apply to all channels of a
user; see :mod:`bots.delivery.recipient_availability`.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

import msgspec

from bots.delivery.recipient_cache import Recipient
from service.model import ChannelId
from service.store.delivery.outbox import ANNOUNCEMENTS, QueuedItem, Suppressions
from service.users.preferences import FOR_ALL, effective_digest, effective_interval_s
from service.users.quiet_hours_and_digests import next_digest_s

DIGEST_TOLERANCE_S: Final = 600
"""Time subtracted from the notification interval of a user who receives digests. Without this tolerance, items with an
interval of one day would miss the next daily digest whenever the previous digest was sent slightly late."""
MAX_DUE_ITEMS: Final = 100
"""Maximum number of a user's due items that are examined before a claim. If all of them are suppressed, the user is
scheduled again, so that further items are examined."""


def earliest_send_s(queued_s: float, last_message_s: float | None, interval_s: float) -> float:
    """Return the earliest time (Unix seconds) at which an item in a user's outbox may be sent.

    ``queued_s`` is when the item was queued. ``last_message_s`` is when the user was sent the last message about the
    item's channel, or None if there was none. The item waits until ``interval_s`` seconds have passed since that
    message. It does not wait if it was queued before that message but did not fit into it.
    """
    if last_message_s is None or queued_s <= last_message_s:
        return queued_s
    return max(queued_s, last_message_s + interval_s)


class Selection(msgspec.Struct):
    """The decision about which of a user's oldest queued items are sent now. Times are in Unix seconds.

    - ``recipient``: the user's settings.
    - ``last_sent_s``: for each channel with a notification interval (minimum time between messages), when items of the
      channel were last sent to the user.
    - ``suppressions``: maps the id of each examined item to "later" if the item must wait, to None if it is dropped,
      and otherwise to the positions of its changes that are omitted.
    - ``interval_channels``: the channels with a notification interval.
    - ``since_s``: when the first of the due items became due; None if no item is due.
    - ``next_due_s``: when the first of the items that must wait becomes due; infinity if no item must wait.
    - ``due_count``: how many items are due.
    - ``numbers``: the user's subscription number for each channel.
    - ``after``: the id of the last of the oldest items, none of which is due; "" if the oldest item is due.
    - ``is_partial``: whether further items were not examined, because too many before them are not due.
    """

    recipient: Recipient
    last_sent_s: Mapping[ChannelId, float]
    suppressions: Suppressions = {}
    interval_channels: set[ChannelId] = set()
    since_s: float | None = None
    next_due_s: float = inf
    due_count: int = 0
    numbers: dict[ChannelId, int] = {}
    after: str = ""
    is_partial: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of due items is reached, so that further items may not have been examined."""
        return self.due_count == MAX_DUE_ITEMS

    def count_if_due(self, queued: QueuedItem, now_s: float) -> bool:
        """Return whether an item is due: its notification interval has passed, and its own digest, if any, is due.

        If the item is due, count it in ``due_count``. If not, reduce ``next_due_s`` to the time when it becomes due,
        unless another item becomes due earlier.
        """
        channel_id = queued.item.channel
        preferences, user_settings = self.recipient.preferences, self.recipient.user_settings
        is_subscribed = not queued.item.matches and channel_id != ANNOUNCEMENTS
        number = self.numbers[channel_id] if is_subscribed else FOR_ALL
        digest = effective_digest(preferences, number, user_settings.digest)
        interval_s = 0.0
        if is_subscribed:
            interval_s = effective_interval_s(preferences, number)
            if digest is not None:
                interval_s = max(0.0, interval_s - DIGEST_TOLERANCE_S)
        due_s = earliest_send_s(queued.queued_s, self.last_sent_s.get(channel_id), interval_s)
        if digest is not None and self.recipient.has_digest_per_item:
            due_s = next_digest_s(digest, user_settings.zone, due_s)
        if interval_s > 0:
            self.interval_channels.add(channel_id)
        if due_s > max(now_s, queued.queued_s):
            self.next_due_s = min(self.next_due_s, due_s)
            if not self.due_count:
                self.after = queued.id
            return False
        self.since_s = due_s if self.since_s is None else min(self.since_s, due_s)
        self.due_count += 1
        return True
