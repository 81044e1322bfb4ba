"""A cache for the users of one process: their settings, and whether their clients send receipts."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec

from service.model import UserId
from service.store import Store
from service.users.preferences import PreferencesByNumber, has_digests
from service.users.user_settings import UserSettings


class HeldItems(msgspec.Struct):
    """The oldest items in a user's outbox, none of which is due yet.

    ``after`` is the id of the last of them, or "". The first of them is due at ``until_s`` (Unix s).
    """

    after: str = ""
    until_s: float = 0.0


class Recipient(msgspec.Struct, frozen=True, dict=True):
    """The settings of one user.

    ``user_settings`` are the user's general settings, such as quiet hours, digests and language. ``preferences`` maps
    subscription numbers to the user's settings for these subscriptions. ``held`` are items that need not be examined
    again while these settings hold.
    """

    user_settings: UserSettings
    preferences: PreferencesByNumber
    held: HeldItems = msgspec.field(default_factory=HeldItems)

    @cached_property
    def has_digest_per_item(self) -> bool:
        """Whether the digest that an item waits for depends on the item, because folders have digests of their own."""
        return has_digests(self.preferences)

    @property
    def common_settings(self) -> UserSettings:
        """The settings that delay all items alike: ``user_settings``, without a digest that depends on the item."""
        if self.user_settings.digest is None or not self.has_digest_per_item:
            return self.user_settings
        return msgspec.structs.replace(self.user_settings, digest=None)


class RecipientCache:
    """Caches users' settings, and whether users' clients send receipts.

    A user's settings are dropped from the cache when they change, or when another process takes over the user.
    """

    def __init__(self, store: Store) -> None:
        """Create an empty cache of the settings in ``store``."""
        self._store = store
        self._recipients: dict[UserId, Recipient] = {}
        self._receipt_senders: set[UserId] = set()
        self._change_count = 0

    async def get(self, user_ids: Sequence[UserId]) -> dict[UserId, Recipient]:
        """Map these users to their settings. Raises StoreUnavailable if the store does not respond."""
        cached = {user_id: self._recipients[user_id] for user_id in user_ids if user_id in self._recipients}
        missing = [user_id for user_id in user_ids if user_id not in cached]
        if not missing:
            return cached
        change_count = self._change_count
        users, preferences = await asyncio.gather(
            self._store.users.recipients(missing), self._store.preferences.of_users(missing)
        )
        read = {}
        for user_id, (user_settings, sends_receipts), own in zip(missing, users, preferences, strict=True):
            read[user_id] = Recipient(user_settings, own)
            if sends_receipts:
                self._receipt_senders.add(user_id)
        if change_count == self._change_count:  # else it may have been read before the change
            self._recipients |= read
        return cached | read

    def sends_receipts(self, user_id: UserId) -> bool:
        """Return whether a user's client is known to send receipts (XEP-0184)."""
        return user_id in self._receipt_senders

    def on_first_receipt(self, user_id: UserId) -> None:
        """Record that a user's client sends receipts."""
        self._receipt_senders.add(user_id)

    def remove(self, user_id: UserId) -> None:
        """Drop a user's settings from the cache, because they have been changed or deleted."""
        self._change_count += 1
        self._recipients.pop(user_id, None)

    def retain(self, is_assigned: Callable[[UserId], bool]) -> None:
        """Drop the data about all users except those for whom ``is_assigned`` returns True."""
        self._change_count += 1
        self._recipients = {user_id: own for user_id, own in self._recipients.items() if is_assigned(user_id)}
        self._receipt_senders = set(filter(is_assigned, self._receipt_senders))
