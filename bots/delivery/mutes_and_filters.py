"""Mutes, filters, numeric conditions and unwanted edits: decides which changes are not sent to a user.

These are queued items, or single changes in them.

Items whose notification interval has not passed, or that wait for the digest of a folder, are left for later
(:mod:`bots.delivery.notification_intervals`).

The decision is made just before a batch is claimed, that is, before items are moved from the outbox into a message.
Therefore a change of settings takes effect at once. The decision is stored with the claimed batch, so that a suppressed
entry stays suppressed if the batch is sent again. Suppressing an entry does not suppress its copies in other channels.
An item that is queued after a decision waits for the next decision.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cachetools import FIFOCache

from bots.delivery.batch_renderer import load_versions
from bots.delivery.notification_intervals import MAX_DUE_ITEMS, Selection
from bots.delivery.recipient_cache import Recipient
from service.discovery.queries.saved_searches import SearchableEntry
from service.model import ChannelId, Delta, UserId
from service.store import Store
from service.store.delivery.outbox import ANNOUNCEMENTS, OutboxItem, QueuedItem
from service.users.change_suppression import suppressed_positions
from service.users.filters import build_subjects
from service.users.preferences import FOR_ALL, has_digests, has_filters, has_intervals

MAX_PAGES: Final = 10
"""Maximum number of pages, of ``MAX_DUE_ITEMS`` items each, that are read from an outbox at once to find due items."""
MAX_CACHED_ITEMS: Final = 256
"""Maximum number of items whose changes are cached, in the form in which filters are applied to them."""

_Changes = tuple[tuple[Delta, tuple[SearchableEntry, ...]], ...]


class ItemSelector:
    """Decides which of the users' queued items may be sent now."""

    def __init__(self, store: Store) -> None:
        """Create a selector that reads queues, channels' logs and subscriptions from ``store``."""
        self._store = store
        self._changes: FIFOCache[tuple[ChannelId, int, int | None], _Changes] = FIFOCache(MAX_CACHED_ITEMS)

    async def select(self, recipients: Mapping[UserId, Recipient], now_s: float) -> dict[UserId, Selection]:
        """Decide, for each user with mutes, filters, intervals or digests of folders, which items may be sent now.

        Users without any of these are absent from the result, because all their items may be sent. ``now_s`` is in Unix
        seconds. Raises StoreUnavailable if the store does not respond.
        """
        recipients = {
            user_id: own
            for user_id, own in recipients.items()
            if has_filters(own.preferences) or has_intervals(own.preferences) or has_digests(own.preferences)
        }
        if not recipients:
            return {}
        last_sent_s = await self._store.outbox.last_sent_s(list(recipients))
        selections = {
            user_id: Selection(recipients[user_id], own_s)
            for user_id, own_s in zip(recipients, last_sent_s, strict=True)
        }
        for selection in selections.values():
            held = selection.recipient.held
            if now_s < held.until_s:
                selection.after, selection.next_due_s = held.after, held.until_s
        cursors = {user_id: selection.after for user_id, selection in selections.items()}
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
        for user_id, selection in selections.items():
            selection.is_partial = user_id in cursors
            held = selection.recipient.held
            held.after, held.until_s = selection.after, selection.next_due_s
        return selections

    async def _load_numbers(self, queues: Mapping[UserId, tuple[Selection, Sequence[QueuedItem]]]) -> None:
        """Load the numbers of the users' subscriptions to the channels that queued items are about.

        ``queues`` maps each user to a pair: the user's selection, and a page of the user's queued items. A selection
        is the decision about which items are sent now. The loaded numbers are stored in its ``numbers``.
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
            if not selection.count_if_due(queued, now_s):
                selection.suppressions[queued.id] = "later"
            elif queued.item.channel == ANNOUNCEMENTS:
                selection.suppressions[queued.id] = ()  # mutes and filters are about channels
            else:
                preferences, changes = selection.recipient.preferences, await self._load_changes(queued.item)
                number = selection.numbers[queued.item.channel]
                positions = suppressed_positions(preferences, number, changes, edits=queued.item.edits)
                if positions and queued.item.after_version is not None:
                    positions = _count_from_last(positions, changes)
                selection.suppressions[queued.id] = positions

    async def _load_changes(self, item: OutboxItem) -> _Changes:
        key = (item.channel, item.version, item.after_version)
        changes = self._changes.get(key)
        if changes is None:
            versions = await load_versions(self._store.channels, item)
            changes = self._changes[key] = tuple((delta, build_subjects(delta.changes)) for delta in versions.deltas)
        return changes


def _count_from_last(positions: Iterable[int], versions: _Changes) -> tuple[int, ...]:
    """Convert ``positions`` to negative numbers that count back from the last change, which has position -1.

    ``positions`` are indexes among all changes of ``versions``. The results stay valid if the channel's log drops
    the oldest versions before the message is rendered.
    """
    count = sum(len(delta.changes) for delta, _ in versions)
    return tuple(position - count for position in positions)
