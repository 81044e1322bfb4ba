"""Corrections (XEP-0308): finds the earlier message that a batch of edits replaces.

A batch of edits replaces the newest message that contains one of the edited entries. The message must be among the last
20 sent to the user, all its entries must still be in the channels' logs, and the user must still subscribe to its
channels. The correction contains the whole text of the earlier message, with the current state of its entries. If the
batch also edits entries that are not in this message, the correction contains these edits too.

If no message can be corrected, the batch is sent as a short message "Edited: …". This also happens if the correction
would contain more than ``MAX_ITEMS_CORRECTED`` items. Clients that do not support corrections show a correction as a
new message, so its text must be understandable by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from cachetools import LRUCache

from bots.delivery.batch_renderer import load_versions, select_changes
from service.model import ChannelId, UserId
from service.store import Store
from service.store.delivery.outbox import Batch, MessageId, OutboxItem, SentMessage

MAX_ITEMS_CORRECTED: Final = 40
"""Maximum number of items in a corrected message, including the items that corrections have added to it."""
MAX_CACHED_ITEMS: Final = 512
"""Maximum number of items whose entry keys are cached."""

_EntryKeys = frozenset[tuple[ChannelId, str]]


class CorrectionFinder:
    """Finds earlier messages that batches of edits can replace, and turns the batches into corrections (XEP-0308)."""

    def __init__(self, store: Store) -> None:
        """Create a finder that reads sent messages and channels' logs from ``store``."""
        self._store = store
        self._entries: LRUCache[OutboxItem, _EntryKeys] = LRUCache(MAX_CACHED_ITEMS)

    async def correct(self, claimed: Mapping[UserId, Batch]) -> dict[UserId, Batch]:
        """Turn each batch of edits into a correction (XEP-0308) if there is an earlier message that it can replace.

        ``claimed`` maps each user to the batch that was just created for the user. Return a copy of ``claimed`` with
        the corrections. All other batches are unchanged. Raises StoreUnavailable if the store does not respond.
        """
        edits = {user_id: batch for user_id, batch in claimed.items() if batch.items[0].edits}
        earlier = await self._store.outbox.sent_messages(list(edits))
        corrections: list[tuple[UserId, MessageId, MessageId]] = []
        for (user_id, batch), messages in zip(edits.items(), earlier, strict=True):
            edited = await self._entries_of(batch.items) or frozenset()
            if (message := await self._find_newest(messages, edited)) is not None:
                corrections.append((user_id, batch.message_id, message.message_id))
        return {**claimed, **await self._store.outbox.correct(corrections, MAX_ITEMS_CORRECTED)}

    async def _find_newest(self, messages: Sequence[SentMessage], edited: _EntryKeys) -> SentMessage | None:
        """Return the newest message that contains an edited entry and can be rendered again; None if there is none.

        ``messages`` are ordered from the newest to the oldest. ``edited`` are the keys of the edited entries.
        """
        channel_ids = {channel_id for channel_id, _ in edited}
        for message in messages:
            if not channel_ids.isdisjoint(item.channel for item in message.items):
                entries = await self._entries_of(message.items)
                if entries is not None and not entries.isdisjoint(edited):
                    return message
        return None

    async def _entries_of(self, items: Sequence[OutboxItem]) -> _EntryKeys | None:
        """Return the keys of all entries in these items, or None if some of the entries can no longer be read.

        Entries can no longer be read if the channel's log has dropped the version that contains them.
        """
        entries: set[tuple[ChannelId, str]] = set()
        for each in items:
            item = msgspec.structs.replace(each, queued_s=0.0)  # differs between users
            own = self._entries.get(item)
            if own is None:
                versions = await load_versions(self._store.channels, item)
                if versions.missing_count:
                    return None
                changes = [change for delta in select_changes(item, versions.deltas) for change in delta.changes]
                own = self._entries[item] = frozenset((item.channel, change.entry.key) for change in changes)
            entries |= own
        return frozenset(entries)
