"""What delivery remembers of people: whose clients send receipts, and who wants to be told what, when and how."""

import asyncio
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final

import msgspec

from service.habits import Habits
from service.model import UserId
from service.preferences import ByNumber
from service.store import Store
from service.store.outbox import MessageId

MOST_UNANSWERED: Final = 20
"""After so many batches without a receipt we stop waiting for any, until one comes: what a later session
would have to send again is bounded. Of more batches than these no receipts are awaited at a time."""


class Wishes(msgspec.Struct, frozen=True):
    """When one person wants to be told, and what and how: as it was when a burst for them began."""

    habits: Habits
    preferences: ByNumber


class Knowing:
    """Remembered until it changes, or somebody else serves them."""

    def __init__(self, store: Store) -> None:
        """Learn from ``store``."""
        self._store = store
        self.receipts: dict[UserId, bool] = {}
        self.habits: dict[UserId, Habits] = {}
        self.preferences: dict[UserId, ByNumber] = {}
        self._unanswered: Counter[UserId] = Counter()
        self._unreceipted: dict[UserId, dict[MessageId, None]] = {}
        self._changes = 0

    async def learn(self, uids: Sequence[UserId]) -> dict[UserId, Wishes]:
        """Find out what we do not remember of these people; return what they want. Raises StoreUnavailable."""
        known = {uid: Wishes(self.habits[uid], self.preferences[uid]) for uid in uids if uid in self.habits}
        unknown = [uid for uid in uids if uid not in known]
        changes = self._changes
        receipts, habits, preferences = await asyncio.gather(
            self._store.users.receipts(unknown),
            self._store.users.habits(unknown),
            self._store.preferences.of_users(unknown),
        )
        self.receipts = dict(zip(unknown, receipts, strict=True)) | self.receipts
        if changes == self._changes:  # else it may have been read before somebody changed it
            self.habits.update(zip(unknown, habits, strict=True))
            self.preferences.update(zip(unknown, preferences, strict=True))
        return known | dict(zip(unknown, map(Wishes, habits, preferences), strict=True))

    def answers(self, uid: UserId, message_id: MessageId) -> None:
        """Somebody's client has sent a receipt."""
        self._unanswered.pop(uid, None)
        self.finished(uid, message_id)

    def is_awaited(self, uid: UserId) -> bool:
        """Whether to wait for one more receipt of somebody whose client sends some; counts that."""
        awaited = self._unanswered[uid] < MOST_UNANSWERED
        self._unanswered[uid] += awaited
        return awaited

    def lacks_receipts(self, uid: UserId) -> bool:
        """Whether somebody was sent batches of which we await the receipts."""
        return uid in self._unreceipted

    def awaits(self, uid: UserId, message_ids: Sequence[MessageId]) -> None:
        """Exactly these batches, oldest first, are the ones of which we await somebody's receipts."""
        self._unreceipted.pop(uid, None)
        if message_ids:
            self._unreceipted[uid] = dict.fromkeys(message_ids)

    def sent(self, uid: UserId, message_id: MessageId) -> list[MessageId]:
        """The receipt of this batch is awaited; return for which older ones we give that up."""
        waiting = self._unreceipted.setdefault(uid, {})
        if message_id in waiting:
            return []
        waiting[message_id] = None
        given_up = list(waiting)[:-MOST_UNANSWERED]
        for old in given_up:
            del waiting[old]
        return given_up

    def finished(self, uid: UserId, message_id: MessageId) -> None:
        """No receipt of this batch is awaited."""
        waiting = self._unreceipted.get(uid, {})
        waiting.pop(message_id, None)
        if not waiting:
            self._unreceipted.pop(uid, None)

    def changed(self, uid: UserId) -> None:
        """Somebody has other habits or preferences now."""
        self._changes += 1
        self.habits.pop(uid, None)

    def forget(self, uid: UserId) -> None:
        """Remember nothing of somebody."""
        self._changes += 1
        for told in self._all():
            told.pop(uid, None)

    def keep(self, holds: Callable[[UserId], bool]) -> None:
        """Remember only some: what we know of the others will soon be old."""
        self._changes += 1
        for told in self._all():
            for uid in [uid for uid in told if not holds(uid)]:
                del told[uid]

    def _all(self) -> tuple[MutableMapping[UserId, Any], ...]:
        return self.habits, self.preferences, self.receipts, self._unanswered, self._unreceipted
