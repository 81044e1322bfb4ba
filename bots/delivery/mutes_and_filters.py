"""Suppression of queued items according to a user's settings: mutes, filters, unwanted edits, notification intervals.

The decision is made just before a batch is claimed, so a change of settings applies at once. It is passed to the claim:
a suppressed entry does not suppress its copies in other channels, stays suppressed in every attempt, and an item that
is queued between decision and claim is not claimed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

import msgspec
from cachetools import FIFOCache

from bots.delivery.batch_renderer import load_versions
from bots.delivery.recipient_cache import Recipient
from service.discovery.queries.saved_searches import SearchableEntry
from service.model import ChannelId, Delta, UserId
from service.store import Store
from service.store.delivery.outbox import ANNOUNCEMENTS, OutboxItem, QueuedItem, Suppressions
from service.users.preferences import (
    DIGEST_TOLERANCE_S,
    FOR_ALL,
    build_subjects,
    earliest_send_s,
    effective_interval_s,
    has_filters,
    has_intervals,
    suppressed_positions,
)

MAX_DUE_ITEMS: Final = 100
"""Maximum number of a user's due items examined before a claim. If all are suppressed, the user is scheduled again."""
MAX_PAGES: Final = 10
"""Maximum number of pages of ``MAX_DUE_ITEMS`` items that are searched for due items; later items have to wait."""
MAX_CACHED_ITEMS: Final = 256
"""Maximum number of items whose changes are cached in the form that filters read."""

_Changes = tuple[tuple[Delta, tuple[SearchableEntry, ...]], ...]


class Selection(msgspec.Struct):
    """The decision about one user's oldest items. Times are Unix s.

    - ``recipient``: the user's settings.
    - ``last_sent_s``: the time of the last items sent to the user, for each channel with a notification interval.
    - ``suppressions``: the items, or the changes in them, that are not sent now, by the items' ids in the queue.
    - ``spaced``: the channels with a notification interval.
    - ``since_s``: the time when the first due item became due; None if no item is due.
    - ``next_due_s``: the time when the next item that is too early now is due; infinity if there is no such item.
    - ``due_count``: number of due items.
    - ``numbers``: the numbers of the user's subscriptions, by channel.
    """

    recipient: Recipient
    last_sent_s: Mapping[ChannelId, float]
    suppressions: Suppressions = {}
    spaced: set[ChannelId] = set()
    since_s: float | None = None
    next_due_s: float = inf
    due_count: int = 0
    numbers: dict[ChannelId, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether the limit on due items is reached; the user may then have more items, which were not examined."""
        return self.due_count == MAX_DUE_ITEMS

    def take(self, queued: QueuedItem, now_s: float) -> bool:
        """Return whether an item is due, that is, its channel's notification interval has passed; count due items."""
        channel_id = queued.item.channel
        is_spaced = not queued.item.matches and channel_id != ANNOUNCEMENTS
        spacing_s = 0.0
        if is_spaced:
            spacing_s = effective_interval_s(self.recipient.preferences, self.numbers[channel_id])
            if self.recipient.user_settings.digest is not None:
                spacing_s = max(0.0, spacing_s - DIGEST_TOLERANCE_S)
        due_s = earliest_send_s(queued.queued_s, self.last_sent_s.get(channel_id), spacing_s)
        if spacing_s > 0:
            self.spaced.add(channel_id)
        if due_s > max(now_s, queued.queued_s):
            self.next_due_s = min(self.next_due_s, due_s)
            return False
        self.since_s = due_s if self.since_s is None else min(self.since_s, due_s)
        self.due_count += 1
        return True


class ItemSelector:
    """Decides which of the users' queued items may be sent now."""

    def __init__(self, store: Store) -> None:
        """Create a selector that reads queues, channels' logs and subscriptions from ``store``."""
        self._store = store
        self._changes: FIFOCache[tuple[ChannelId, int, int | None], _Changes] = FIFOCache(MAX_CACHED_ITEMS)

    async def select(self, recipients: Mapping[UserId, Recipient], now_s: float) -> dict[UserId, Selection]:
        """Return the decision for each user who has mutes, filters or intervals; other users may be sent all items.

        Raises StoreUnavailable.
        """
        recipients = {
            user_id: own
            for user_id, own in recipients.items()
            if has_filters(own.preferences) or has_intervals(own.preferences)
        }
        if not recipients:
            return {}
        last_sent_s = await self._store.outbox.last_sent_s(list(recipients))
        selections = {
            user_id: Selection(recipients[user_id], own_s)
            for user_id, own_s in zip(recipients, last_sent_s, strict=True)
        }
        cursors = dict.fromkeys(recipients, "")
        for _ in range(MAX_PAGES):
            if not cursors:
                break
            queues = dict(zip(cursors, await self._store.outbox.queued_items(cursors, MAX_DUE_ITEMS), strict=True))
            await self._load_numbers({user_id: (selections[user_id], queue) for user_id, queue in queues.items()})
            for user_id, queue in queues.items():
                await self._examine(selections[user_id], queue, now_s)
                if len(queue) < MAX_DUE_ITEMS or selections[user_id].is_full:
                    del cursors[user_id]
                else:
                    cursors[user_id] = queue[-1].id
                await asyncio.sleep(0)  # filters of many users do not block the event loop
        return selections

    async def _load_numbers(self, queues: Mapping[UserId, tuple[Selection, Sequence[QueuedItem]]]) -> None:
        """Read the numbers of users' subscriptions to the channels of these items, and add them to the selections.

        ``queues`` maps each user to the decision about the user's items, and a page of these items.
        """
        missing = {
            (user_id, queued.item.channel): selection
            for user_id, (selection, queue) in queues.items()
            for queued in queue
            if queued.item.channel not in selection.numbers
        }
        numbers = await self._store.subscriptions.numbers(list(missing))
        for (user_id, channel_id), number in zip(missing, numbers, strict=True):
            missing[user_id, channel_id].numbers[channel_id] = number or FOR_ALL

    async def _examine(self, selection: Selection, queue: Sequence[QueuedItem], now_s: float) -> None:
        for queued in queue:
            if selection.is_full:
                return
            if not selection.take(queued, now_s):
                selection.suppressions[queued.id] = "later"
            elif queued.item.channel == ANNOUNCEMENTS:
                selection.suppressions[queued.id] = ()  # mutes and filters are about channels
            else:
                preferences, changes = selection.recipient.preferences, await self._load_changes(queued.item)
                number = selection.numbers[queued.item.channel]
                selection.suppressions[queued.id] = suppressed_positions(
                    preferences, number, changes, edits=queued.item.edits
                )

    async def _load_changes(self, item: OutboxItem) -> _Changes:
        key = (item.channel, item.version, item.after_version)
        changes = self._changes.get(key)
        if changes is None:
            versions = await load_versions(self._store.channels, item)
            changes = self._changes[key] = tuple((delta, build_subjects(delta.changes)) for delta in versions.deltas)
        return changes
