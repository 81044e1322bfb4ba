"""Edits become corrections (XEP-0308) of the messages that told the entries.

A batch of edits replaces the newest message that told one of them, if it is among the person's last 20, all it told
is still kept, and the person left none of its channels: the whole earlier text is sent again, with the entries as
they are now. Edits of what other messages told stand in the same text. If no message can be corrected, the batch
stays a short message "Edited: …"; that also ends a message that was corrected too often.

Clients that do not support corrections show one as a new message, so it has to make sense alone.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from cachetools import LRUCache

from bots.bodies import shares, versions
from service.model import ChannelId, UserId
from service.store import Store
from service.store.outbox import Batch, MessageId, OutboxItem, ToldMessage

MOST_ITEMS: Final = 40
"""Of a message with all its corrections."""
KEPT: Final = 512
"""Items of which we remember the entries."""

_Entries = frozenset[tuple[ChannelId, str]]


class Corrections:
    """Finds the earlier messages, and has the store tie the batches to them."""

    def __init__(self, store: Store) -> None:
        """Look in this store."""
        self._store = store
        self._known: LRUCache[OutboxItem, _Entries] = LRUCache(KEPT)

    async def made(self, claimed: Mapping[UserId, Batch]) -> dict[UserId, Batch]:
        """Return freshly claimed batches, those of edits as corrections where that can be. Raises StoreUnavailable."""
        edits = {uid: batch for uid, batch in claimed.items() if batch.items[0].edits}
        earlier = await self._store.outbox.told(list(edits))
        found: list[tuple[UserId, MessageId, MessageId]] = []
        for (uid, batch), messages in zip(edits.items(), earlier, strict=True):
            edited = await self._told_by(batch.items) or frozenset()
            if (message := await self._newest(messages, edited)) is not None:
                found.append((uid, batch.message_id, message.message_id))
        return {**claimed, **await self._store.outbox.correct(found, MOST_ITEMS)}

    async def _newest(self, messages: Sequence[ToldMessage], edited: _Entries) -> ToldMessage | None:
        channels = {cid for cid, _ in edited}
        for message in messages:
            if not channels.isdisjoint(item.channel for item in message.items):
                told = await self._told_by(message.items)
                if told is not None and not told.isdisjoint(edited):
                    return message
        return None

    async def _told_by(self, items: Sequence[OutboxItem]) -> _Entries | None:
        """Return the entries that these items tell of; None if one of them is not kept any more."""
        found: set[tuple[ChannelId, str]] = set()
        for each in items:
            item = msgspec.structs.replace(each, queued_s=0.0)  # it differs from person to person
            entries = self._known.get(item)
            if entries is None:
                kept = await versions(self._store.channels, item)
                if kept.gone:
                    return None
                told = [change for delta in shares(item, kept.deltas) for change in delta.changes]
                entries = self._known[item] = frozenset((item.channel, change.entry.key) for change in told)
            found |= entries
        return frozenset(found)
