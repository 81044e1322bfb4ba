"""What one process remembers of the people it delivers to: their settings, and the receipts of their clients."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final

import msgspec
from cachetools import FIFOCache

from bots.xmpp.message_ids import is_batch
from service.model import UserId
from service.observability.metrics import RECEIPT_DELAY
from service.observability.tracing import TRACING
from service.store import Store
from service.store.delivery.outbox import MessageId
from service.users.preferences import PreferencesByNumber
from service.users.quiet_hours import UserSettings

MOST_UNANSWERED: Final = 20
"""After so many batches without a receipt no more are awaited, until one comes. Of so many batches receipts are
awaited at a time: it bounds what a later session would send again."""
_MOST_TIMED: Final = 10_000
"""Messages whose time until the receipt is measured."""


class Recipient(msgspec.Struct, frozen=True):
    """When one person wants messages, of what and how, as it was when a burst for them began."""

    user_settings: UserSettings
    preferences: PreferencesByNumber


class Recipients:
    """A cache of people's settings. An entry is dropped when it changes, or when another process serves the person."""

    def __init__(self, store: Store, receipts: "Receipts") -> None:
        """Read settings from ``store``, and with them who sends receipts."""
        self._store = store
        self._receipts = receipts
        self._known: dict[UserId, Recipient] = {}
        self._changes = 0

    async def of(self, uids: Sequence[UserId]) -> dict[UserId, Recipient]:
        """Return the settings of these people. Raises StoreUnavailable."""
        known = {uid: self._known[uid] for uid in uids if uid in self._known}
        unknown = [uid for uid in uids if uid not in known]
        if not unknown:
            return known
        changes = self._changes
        users, preferences = await asyncio.gather(
            self._store.users.recipients(unknown), self._store.preferences.of_users(unknown)
        )
        read = {uid: Recipient(user[0], own) for uid, user, own in zip(unknown, users, preferences, strict=True)}
        self._receipts.learn({uid: sends for uid, (_, sends) in zip(unknown, users, strict=True)})
        if changes == self._changes:  # else it may have been read before a change
            self._known |= read
        return known | read

    def forget(self, uid: UserId) -> None:
        """Drop a person's settings: they have changed, or are deleted."""
        self._changes += 1
        self._known.pop(uid, None)

    def keep(self, holds: Callable[[UserId], bool]) -> None:
        """Keep only some people's settings."""
        self._changes += 1
        _keep(self._known, holds)


class Receipts:
    """The receipts (XEP-0184) of people's clients: who sends some, which are awaited, how long they take."""

    def __init__(self) -> None:
        """Await none."""
        self._sends: dict[UserId, bool] = {}
        self._unanswered: Counter[UserId] = Counter()
        self._awaited: dict[UserId, dict[MessageId, None]] = {}
        self._sent: FIFOCache[MessageId, tuple[float, Sequence[str]]] = FIFOCache(_MOST_TIMED)

    def sends(self, uid: UserId) -> bool:
        """Whether a person's client is known to send receipts."""
        return self._sends.get(uid, False)

    def learn(self, read: Mapping[UserId, bool]) -> None:
        """Remember whose clients send receipts, as the store has it; a receipt that came meanwhile is newer."""
        for uid, sends in read.items():
            self._sends.setdefault(uid, sends)

    def sending(self, message_id: MessageId, traces: Sequence[str], now_s: float) -> None:
        """A message with the changes of these traces is sent now (Unix s): a receipt may come before the ack."""
        self._sent[message_id] = now_s, traces

    def received(self, uid: UserId, message_id: MessageId, now_s: float, *, teaches: bool) -> None:
        """A client has a message (Unix s); ``teaches``: so it sends receipts."""
        if teaches:
            self._sends[uid] = True
        self._unanswered.pop(uid, None)
        self.drop(uid, message_id)
        if message_id in self._sent:
            sent_s, traces = self._sent.pop(message_id)
            RECEIPT_DELAY.observe(max(0.0, now_s - sent_s))
            for trace in traces:
                TRACING.record_step(trace, "received", sent_s, message=message_id)

    def are_missing(self, uid: UserId) -> bool:
        """Whether receipts of messages to a person are awaited."""
        return uid in self._awaited

    def expect(self, uid: UserId, message_id: MessageId, *, again: bool) -> list[MessageId] | None:
        """Await the receipt of a message that was sent, or sent ``again``; return for which older ones that ends.

        None: this receipt is not awaited, because the client has sent none for too long.
        """
        if not again:
            if self._unanswered[uid] >= MOST_UNANSWERED:
                return None
            self._unanswered[uid] += 1
        awaited = self._awaited.setdefault(uid, {})
        awaited.setdefault(message_id)
        given_up = list(awaited)[:-MOST_UNANSWERED]
        for old in given_up:
            del awaited[old]
        return given_up

    def reset(self, uid: UserId, message_ids: Iterable[MessageId]) -> None:
        """Await the receipts of exactly these messages, oldest first."""
        self._awaited.pop(uid, None)
        if awaited := dict.fromkeys(message_ids):
            self._awaited[uid] = awaited

    def drop(self, uid: UserId, message_id: MessageId) -> None:
        """Do not await the receipt of a message any more."""
        awaited = self._awaited.get(uid, {})
        awaited.pop(message_id, None)
        if not awaited:
            self._awaited.pop(uid, None)

    def forget(self, uid: UserId) -> None:
        """Remember nothing of a person."""
        for known in (self._sends, self._unanswered, self._awaited):
            known.pop(uid, None)
        for message_id in [message_id for message_id in self._sent if is_batch(uid, message_id)]:
            del self._sent[message_id]

    def keep(self, holds: Callable[[UserId], bool]) -> None:
        """Keep only some people's."""
        for known in (self._sends, self._unanswered, self._awaited):
            _keep(known, holds)


def _keep(known: MutableMapping[UserId, Any], holds: Callable[[UserId], bool]) -> None:
    for uid in [uid for uid in known if not holds(uid)]:
        del known[uid]
