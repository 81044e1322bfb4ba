"""The resend policy: decides when batches that may have been lost are sent again.

A *recovery* is the examination of a user's batches in flight (sent, but not complete). It is required when it is not
known whether they have arrived: after a start, a lost session, or a bounce. No new batch is claimed before the recovery
is finished, so that messages keep their order. Every resend has the same message id (guarantee I2).

- Batches that the server has not acknowledged are sent again at once.
- Batches that the server has acknowledged may have been lost by the server. If no receipt arrives, they are sent again
  10 s after the user is seen online, or after 15 s if the user's presence is unknown.
- When a user comes online with an additional client, acknowledged batches may have gone to another client that the user
  is not reading. If no receipt arrives, they are sent again after 5 s.
"""

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import msgspec

from service.store.delivery.outbox import Batch

RECEIPT_TIMEOUT_S: Final = 10.0
"""How long to wait for the receipts of acknowledged batches from a user who was seen online."""
RECEIPT_TIMEOUT_IF_UNSEEN_S: Final = 15.0
"""How long to wait for the receipts of acknowledged batches from a user whose presence is unknown. Reconnecting takes
at most 15 s (a failed attempt and the longest pause after it), so delivery recovers within 30 s after a session is
lost."""
RECEIPT_TIMEOUT_AT_RETURN_S: Final = 5.0
"""How long to wait for the receipts of acknowledged batches from a user who came online with an additional client. The
time is short, because the server sends its stored messages to the new client at once."""


class Recovery(IntEnum):
    """Which of a user's batches must be examined, because they may have been lost.

    Only batches in flight (sent, but not complete) are examined. No new batch is claimed for the user before
    that.
    """

    NONE = 0
    UNACKNOWLEDGED = 1
    """The batches that the server has not acknowledged."""
    ALL_AT_RETURN = 2
    """All batches in flight, for the sole reason that the user came online with an additional client."""
    ALL = 3
    """All batches in flight, because a session was lost or a message bounced."""


class ResendState(msgspec.Struct):
    """States whether and when one user's batches must be sent again, because they may have been lost.

    The examination of the user's batches in flight (sent, but not complete) is called a recovery. Times are in
    seconds of the monotonic clock.
    """

    recovery: Recovery = Recovery.NONE
    awaiting_receipts: bool = False  # nothing is done before resend_s, or a receipt
    resending_acked: bool = False  # acknowledged batches are sent again; only while the user is locked
    was_online: bool = False  # since the recovery began
    resend_s: float = -math.inf  # until when receipts of acknowledged batches are awaited

    @property
    def is_pending(self) -> bool:
        """Whether batches in flight must be examined before a new batch is claimed."""
        return self.recovery > Recovery.NONE

    @property
    def is_full(self) -> bool:
        """Whether all batches in flight must be examined, including those that the server has acknowledged."""
        return self.recovery >= Recovery.ALL_AT_RETURN

    @property
    def not_before_s(self) -> float:
        """The time until which receipts are awaited and nothing is sent to the user; -infinity if none are awaited."""
        return self.resend_s if self.awaiting_receipts else -math.inf

    def require(self) -> None:
        """Require recovery of the batches that the server has not acknowledged, because they may not have been sent."""
        self.recovery = max(self.recovery, Recovery.UNACKNOWLEDGED)

    def require_full(self, resend_s: float) -> None:
        """Require recovery of all batches in flight, including those that the server has acknowledged.

        Acknowledged batches are not sent again before ``resend_s``.
        """
        self.recovery, self.awaiting_receipts, self.resend_s = Recovery.ALL, False, resend_s

    def on_session_lost(self, now_s: float) -> None:
        """Require recovery of all batches in flight, because the session that sent them has ended."""
        self.was_online = False
        self.require_full(now_s + RECEIPT_TIMEOUT_IF_UNSEEN_S)

    def on_send_failed(self) -> None:
        """Require recovery, because sending to the user has failed.

        If acknowledged batches were being sent again, all batches in flight must be recovered; otherwise only the
        batches that the server has not acknowledged.
        """
        self.require()
        if self.resending_acked:
            self.recovery = Recovery.ALL

    def on_receipt(self) -> bool:
        """Stop waiting for receipts, so that messages can be sent at once; return whether any receipts were awaited."""
        was_awaiting, self.awaiting_receipts = self.awaiting_receipts, False
        return was_awaiting

    def on_online(self, now_s: float) -> None:
        """Record that the user is online, and wait at most ``RECEIPT_TIMEOUT_S`` seconds from now for receipts."""
        self.was_online = True
        self.resend_s = min(self.resend_s, now_s + RECEIPT_TIMEOUT_S)

    def on_new_client(self, now_s: float) -> bool:
        """Require recovery of all batches in flight, because the user came online with an additional client.

        If this recovery is already required, return False, and do not prolong the wait for receipts.
        """
        self.was_online = True
        if self.is_full:
            return False
        self.recovery, self.resend_s = Recovery.ALL_AT_RETURN, now_s + RECEIPT_TIMEOUT_AT_RETURN_S
        return True

    def on_offline(self) -> None:
        """Reduce or postpone the recovery of the user's batches in flight, because the user went offline.

        A batch is in flight if it was sent but is not complete. Acknowledged batches need not be sent again while the
        user is offline, because the user's server keeps them.

        Nothing is changed unless all batches in flight must be recovered. In that case, the recovery is changed as
        follows:

        - If the only reason is that the user came online with an additional client, only the batches that the server
          has not acknowledged are recovered. Receipts are no longer awaited.
        - Otherwise, acknowledged batches are not sent again until the user is online.
        """
        if not self.is_full:
            return
        self.was_online = False
        if self.recovery is Recovery.ALL_AT_RETURN:
            self.recovery, self.awaiting_receipts = Recovery.UNACKNOWLEDGED, False
        else:
            self.resend_s = math.inf

    def finish(self, in_flight: Sequence[Batch], now_s: float) -> Sequence[Batch] | None:
        """Finish the recovery; return the batches that must be sent again now, oldest first.

        ``in_flight`` are the user's batches in flight, oldest first. If receipts of acknowledged batches may still
        arrive, do not finish the recovery, and return None.
        """
        is_full = self.is_full
        if is_full and now_s < self.resend_s and any(batch.acked for batch in in_flight):
            self.awaiting_receipts = True
            return None
        self.recovery, self.awaiting_receipts, self.resending_acked = Recovery.NONE, False, is_full
        return in_flight if is_full else [batch for batch in in_flight if not batch.acked]
