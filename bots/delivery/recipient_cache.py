"""A cache of the settings of the users to whom one process delivers."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from bots.delivery.receipt_tracker import ReceiptTracker
from service.model import UserId
from service.store import Store
from service.users.preferences import PreferencesByNumber
from service.users.quiet_hours import UserSettings


class Recipient(msgspec.Struct, frozen=True):
    """One user's settings: quiet hours, digests and language, and preferences by subscription number."""

    user_settings: UserSettings
    preferences: PreferencesByNumber


class RecipientCache:
    """Settings by user. An entry is dropped when the settings change, or when another process serves the user."""

    def __init__(self, store: Store, receipts: ReceiptTracker) -> None:
        """Create a cache of settings in ``store``; it passes to ``receipts`` which users' clients send receipts."""
        self._store = store
        self._receipts = receipts
        self._recipients: dict[UserId, Recipient] = {}
        self._change_count = 0

    async def get(self, user_ids: Sequence[UserId]) -> dict[UserId, Recipient]:
        """Return the settings of these users. Raises StoreUnavailable."""
        cached = {user_id: self._recipients[user_id] for user_id in user_ids if user_id in self._recipients}
        missing = [user_id for user_id in user_ids if user_id not in cached]
        if not missing:
            return cached
        change_count = self._change_count
        users, preferences = await asyncio.gather(
            self._store.users.recipients(missing), self._store.preferences.of_users(missing)
        )
        read = {
            user_id: Recipient(user[0], own) for user_id, user, own in zip(missing, users, preferences, strict=True)
        }
        self._receipts.learn({user_id: sends for user_id, (_, sends) in zip(missing, users, strict=True)})
        if change_count == self._change_count:  # else it may have been read before the change
            self._recipients |= read
        return cached | read

    def remove(self, user_id: UserId) -> None:
        """Drop a user's settings, because they have changed or are deleted."""
        self._change_count += 1
        self._recipients.pop(user_id, None)

    def retain(self, is_assigned: Callable[[UserId], bool]) -> None:
        """Drop the settings of all users except those for whom ``is_assigned`` returns True."""
        self._change_count += 1
        for user_id in [user_id for user_id in self._recipients if not is_assigned(user_id)]:
            del self._recipients[user_id]
