"""Tracking of delivery receipts (XEP-0184): which receipts are awaited, and how long they take."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cachetools import FIFOCache

from bots.xmpp.message_ids import is_batch_id
from service.model import UserId
from service.observability.metrics import RECEIPT_DELAY
from service.observability.tracing import TRACING
from service.store.delivery.outbox import MessageId

MAX_AWAITED: Final = 20
"""Maximum number of receipts awaited from one user. It limits how many batches a later session sends again. If this
many consecutive messages have got no receipt, the receipts of further messages are not awaited until the user sends a
receipt again."""
_MAX_TIMED: Final = 10_000
"""Maximum number of messages for which the time until their receipt is measured."""


class ReceiptTracker:
    """Tracks which receipts are awaited from the users of one process, and how long they take.

    Times are in Unix seconds.
    """

    def __init__(self) -> None:
        """Create a tracker that does not yet await any receipts."""
        self._unanswered: Counter[UserId] = Counter()
        self._awaited: dict[UserId, dict[MessageId, None]] = {}  # oldest first
        self._sent: FIFOCache[MessageId, tuple[float, Sequence[str]]] = FIFOCache(_MAX_TIMED)

    def on_sending(self, message_id: MessageId, traces: Sequence[str], now_s: float) -> None:
        """Start measuring how long the receipt of a message takes.

        Call this before sending the message, because its receipt can arrive before the server's acknowledgement.
        ``traces`` are the trace ids of the changes in the message.
        """
        self._sent[message_id] = now_s, traces

    def on_receipt(self, user_id: UserId, message_id: MessageId, now_s: float) -> None:
        """Record that the receipt of a message has arrived."""
        self._unanswered.pop(user_id, None)
        self.drop(user_id, message_id)
        if message_id in self._sent:
            sent_s, traces = self._sent.pop(message_id)
            RECEIPT_DELAY.observe(max(0.0, now_s - sent_s))
            for trace in traces:
                TRACING.record_step(trace, "received", sent_s, message=message_id)

    def has_awaited(self, user_id: UserId) -> bool:
        """Return whether at least one receipt from this user is awaited."""
        return user_id in self._awaited

    def expect(self, user_id: UserId, message_id: MessageId, *, is_resend: bool) -> list[MessageId] | None:
        """Start waiting for the receipt of a message; return the older messages whose receipts are given up.

        At most ``MAX_AWAITED`` receipts are awaited from a user. If there are more, the oldest of them are given up.
        If none of the user's last ``MAX_AWAITED`` messages got a receipt, do not await this receipt, and return None.

        ``is_resend`` states whether the message was sent before. The receipt of such a message is always awaited. The
        message is not counted a second time among those without a receipt.
        """
        if not is_resend:
            if self._unanswered[user_id] >= MAX_AWAITED:
                return None
            self._unanswered[user_id] += 1
        awaited = self._awaited.setdefault(user_id, {})
        awaited.setdefault(message_id)
        expired = list(awaited)[:-MAX_AWAITED]
        for old in expired:
            del awaited[old]
        return expired

    def reset(self, user_id: UserId, message_ids: Iterable[MessageId]) -> None:
        """Replace the receipts that are awaited from the user with those of ``message_ids``, oldest first."""
        self._awaited.pop(user_id, None)
        if awaited := dict.fromkeys(message_ids):
            self._awaited[user_id] = awaited

    def drop(self, user_id: UserId, message_id: MessageId) -> None:
        """Stop awaiting the receipt of a message."""
        awaited = self._awaited.get(user_id, {})
        awaited.pop(message_id, None)
        if not awaited:
            self._awaited.pop(user_id, None)

    def remove(self, user_id: UserId) -> None:
        """Remove all data about a user, including the sending times of messages whose receipts have not arrived."""
        self._remove(user_id)
        for message_id in [message_id for message_id in self._sent if is_batch_id(user_id, message_id)]:
            del self._sent[message_id]

    def retain(self, is_assigned: Callable[[UserId], bool]) -> None:
        """Remove the data about all users except those for whom ``is_assigned`` returns True."""
        for user_id in {*self._unanswered, *self._awaited}:
            if not is_assigned(user_id):
                self._remove(user_id)

    def _remove(self, user_id: UserId) -> None:
        self._unanswered.pop(user_id, None)
        self._awaited.pop(user_id, None)
