"""The delivery scheduler: decides which user is sent messages next, and when.

It performs no I/O and reads no clock; it gets times as arguments, in seconds of the monotonic clock.

A lock ensures that only one task at a time works for a user. The lock is held by a burst that sends to the user, or by
a command that changes what may be sent. Besides the lock, each user has

- a rate limit (:mod:`bots.delivery.message_rate_limit`);
- a *next item time*: the earliest time at which an item that is delayed by a notification interval becomes due;
- a *deferral*: nothing is sent before the end of quiet hours, or before the next digest. A deferral ends early when
  batches in flight must be recovered, so that a lost digest is sent again without waiting for the next one;
- a *back-off*: after a bounce, nothing is sent for some time, or until the user is seen online
  (:mod:`bots.delivery.bounce_backoff`);
- a pending *recovery*, while it is not known whether batches in flight have arrived
  (:mod:`bots.delivery.resend_policy`).
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from bots.delivery.bounce_backoff import GIVE_UP_AFTER_S, back_off_s
from bots.delivery.message_rate_limit import MessageRateLimit
from bots.delivery.resend_policy import ResendState
from service.model import UserId
from service.store.delivery.outbox import Batch


class _UserState(msgspec.Struct):
    """The scheduler's data about one user. It is removed when it no longer differs from the data of a new user."""

    locked: bool = False
    ready: bool = False  # items may be queued
    resends: ResendState = msgspec.field(default_factory=ResendState)
    bounces: int = 0
    heap_s: float = math.inf  # the time of the user's valid entry in the heap
    rate_s: float = -math.inf  # GCRA's theoretical arrival time
    back_off_until_s: float = -math.inf
    deferred_until_s: float = -math.inf
    next_item_s: float = math.inf  # when the next item that an interval delays becomes due


class DeliveryScheduler:
    """Decides which users are sent messages next, and when.

    It knows the users who have queued items, or had some recently. Times are in seconds of the monotonic clock.
    """

    def __init__(self, messages_per_s: float, is_assigned: Callable[[UserId], bool]) -> None:
        """Create a scheduler without users.

        A user is sent at most ``messages_per_s`` messages per second on average, and at most ``BURST`` messages at
        once. ``is_assigned`` returns whether this process serves a user.
        """
        self._rate_limit = MessageRateLimit(1 / messages_per_s)
        self._is_assigned = is_assigned
        self._users: dict[UserId, _UserState] = {}
        self._heap: list[tuple[float, UserId]] = []  # an entry that differs from the user's heap_s is stale

    # Events.

    def on_items_queued(self, user_ids: Iterable[UserId], now_s: float) -> None:
        """Schedule users for whom items were queued."""
        for user_id in user_ids:
            user = self._state(user_id)
            user.ready = True
            self._schedule(user_id, user, now_s)

    def on_session_lost(self, user_ids: Iterable[UserId], now_s: float) -> None:
        """Require recovery of all batches in flight to these users, because the session that sent them has ended."""
        for user_id in user_ids:
            user = self._state(user_id)
            user.resends.on_session_lost(now_s)
            user.ready, user.deferred_until_s = True, -math.inf
            self._schedule(user_id, user, now_s)

    def require_recovery(self, user_ids: Iterable[UserId]) -> None:
        """Require recovery of these users' unacknowledged batches, which may have been claimed but never sent."""
        for user_id in user_ids:
            self._state(user_id).resends.require()

    def on_send_failed(self, user_ids: Iterable[UserId]) -> None:
        """Require recovery of these users' batches in flight, because sending to the users has failed.

        If a user's acknowledged batches were being sent again, all the user's batches in flight must be recovered.
        Otherwise, only the batches that the server has not acknowledged must be recovered.
        """
        for user_id in user_ids:
            self._state(user_id).resends.on_send_failed()

    def on_sending(self, user_id: UserId, item_count: int, now_s: float) -> None:
        """Charge a message of ``item_count`` items against the user's rate limit."""
        user = self._state(user_id)
        user.rate_s = self._rate_limit.after_message(user.rate_s, item_count, now_s)

    def on_accepted(self, user_id: UserId) -> None:
        """Reset the user's bounce count, because the server acknowledged a message that did not bounce."""
        self._state(user_id).bounces = 0

    def on_receipt(self, user_id: UserId, now_s: float) -> None:
        """Handle a receipt from a user; if the scheduler was waiting for it, stop waiting and schedule the user."""
        user = self._users.get(user_id)
        if user is not None and user.resends.on_receipt():
            self._schedule(user_id, user, now_s)

    def on_bounced(self, user_id: UserId, condition: str, now_s: float, jitter: float) -> None:
        """Start a back-off after a bounce; when it ends, the user's batches in flight are sent again.

        The back-off doubles with each consecutive bounce. ``condition`` is the name of the stanza error. ``jitter`` is
        a random number in [0, 1). Both are passed to :func:`~bots.delivery.bounce_backoff.back_off_s`.
        """
        user = self._state(user_id)
        user.back_off_until_s = now_s + back_off_s(condition, user.bounces, jitter)
        user.bounces = min(user.bounces + 1, 20)
        user.resends.require_full(user.back_off_until_s)
        user.ready = True
        self._schedule(user_id, user, now_s)

    def on_online(self, user_id: UserId, now_s: float) -> None:
        """End the back-off after a bounce; wait at most ``RECEIPT_TIMEOUT_S`` for receipts of acknowledged batches."""
        user = self._users.get(user_id)
        if user is None:
            return
        if user.back_off_until_s > now_s:
            user.back_off_until_s = user.resends.resend_s = now_s
        user.resends.on_online(now_s)
        self._schedule(user_id, user, now_s)

    def on_new_client(self, user_id: UserId, now_s: float) -> None:
        """Require recovery of all batches in flight, because the user came online with an additional client.

        If this recovery is already required, do not prolong the wait for receipts.
        """
        user = self._state(user_id)
        if user.resends.on_new_client(now_s):
            user.ready, user.deferred_until_s = True, -math.inf
        self._schedule(user_id, user, now_s)

    def on_offline(self, user_id: UserId) -> None:
        """Reduce or postpone the recovery of the user's batches in flight, because the user went offline.

        A batch is in flight if it was sent but is not complete. Acknowledged batches need not be sent again while the
        user is offline, because the user's server keeps them.

        Nothing is changed if the user's last message bounced, or if only unacknowledged batches must be recovered.
        Otherwise, the recovery of all batches in flight is changed as follows:

        - If the only reason is that the user came online with an additional client, only the batches that the server
          has not acknowledged are recovered. Receipts are no longer awaited.
        - Otherwise, acknowledged batches are not sent again until the user is online.
        """
        user = self._users.get(user_id)
        if user is not None and not user.bounces:
            user.resends.on_offline()

    def end_deferral(self, user_id: UserId, now_s: float) -> None:
        """End the delay set by :meth:`defer`, because the user's settings changed or the user became available.

        Items that are delayed by a notification interval are examined again as well.
        """
        user = self._users.get(user_id)
        if user is not None:
            user.deferred_until_s = -math.inf
            user.ready = user.ready or user.next_item_s < math.inf
            self._schedule(user_id, user, now_s)

    # Locks.

    def acquire_due(self, max_count: int, now_s: float) -> list[UserId]:
        """Lock up to ``max_count`` users who are due, and return them. The caller must :meth:`release` each of them."""
        due: list[UserId] = []
        while self._heap and self._heap[0][0] <= now_s and len(due) < max_count:
            heap_s, user_id = heapq.heappop(self._heap)
            user = self._users.get(user_id)
            if user is None or heap_s != user.heap_s:
                continue
            user.heap_s = math.inf
            if user.locked or (not user.ready and user.next_item_s == math.inf):
                self._remove_if_idle(user_id, user, now_s)
            elif self._due_s(user) > now_s:
                self._schedule(user_id, user, now_s)
            elif not self._is_assigned(user_id):  # another process serves them now
                del self._users[user_id]
            else:
                user.locked, user.ready, user.next_item_s = True, False, math.inf
                due.append(user_id)
        return due

    def next_due_s(self) -> float:
        """Return the earliest time at which :meth:`acquire_due` may return a user; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def try_acquire(self, user_id: UserId) -> bool:
        """Lock a user; return False if the user is already locked."""
        user = self._state(user_id)
        if user.locked:
            return False
        user.locked = True
        return True

    def release(self, user_id: UserId, now_s: float, *, again: bool = False) -> None:
        """Unlock a user; if ``again`` is true, schedule the user again, because there may be more to send."""
        user = self._state(user_id)
        user.locked = user.resends.resending_acked = False
        user.ready = user.ready or again
        self._schedule(user_id, user, now_s)

    def has_locked_unassigned(self) -> bool:
        """Return whether a user who is no longer assigned to this process is still locked."""
        return any(user.locked and not self._is_assigned(user_id) for user_id, user in self._users.items())

    # Decisions about a locked user.

    def defer(self, user_id: UserId, until_s: float) -> None:
        """Delay all messages to a user until ``until_s``."""
        user = self._state(user_id)
        user.ready, user.deferred_until_s = True, until_s

    def set_next_item(self, user_id: UserId, due_s: float) -> None:
        """Set the time at which the user's queued items must be examined again.

        ``due_s`` is the earliest time at which an item that is delayed by a notification interval may be sent;
        infinity if no item is delayed.
        """
        self._state(user_id).next_item_s = due_s

    def needs_recovery(self, user_id: UserId) -> bool:
        """Return whether batches in flight to a user must be examined before a new batch is claimed."""
        return self._state(user_id).resends.is_pending

    def needs_full_recovery(self, user_id: UserId) -> bool:
        """Return whether all batches in flight to a user, including acknowledged ones, must be examined."""
        return self._state(user_id).resends.is_full

    def recover(self, user_id: UserId, in_flight: Sequence[Batch], now_s: float) -> Sequence[Batch]:
        """Finish a recovery; return the batches that must be sent again now, oldest first.

        ``in_flight`` are the user's batches in flight, oldest first. While receipts of acknowledged batches may still
        arrive, do not finish the recovery, and return no batches.
        """
        user = self._state(user_id)
        again = user.resends.finish(in_flight, now_s)
        if again is None:
            user.ready = True
            return ()
        return again

    def was_online(self, user_id: UserId) -> bool:
        """Return whether the user has been seen online since the XMPP session was last lost.

        The result is False again if the user went offline while recovery of all batches in flight was required.
        """
        return self._state(user_id).resends.was_online

    def is_undeliverable(self, user_id: UserId, claimed_s: float, wall_s: float) -> bool:
        """Return whether a batch must be given up, because it is too old and the user's messages bounce.

        ``claimed_s`` is the time at which the batch was claimed, and ``wall_s`` the current time (both in Unix
        seconds). The result is False if the user's last message did not bounce.
        """
        return self._state(user_id).bounces > 0 and wall_s - claimed_s > GIVE_UP_AFTER_S

    def _state(self, user_id: UserId) -> _UserState:
        return self._users.setdefault(user_id, _UserState())

    def _due_s(self, user: _UserState) -> float:
        rate_s = self._rate_limit.next_message_s(user.rate_s)
        ready_s = -math.inf if user.ready else user.next_item_s
        return max(ready_s, rate_s, user.back_off_until_s, user.deferred_until_s, user.resends.not_before_s)

    def _schedule(self, user_id: UserId, user: _UserState, now_s: float) -> None:
        """Put an unlocked user into the heap, keyed by the time at which the user becomes due.

        A user without items to send is instead keyed by the time at which the user's state can be removed.
        """
        if user.locked:
            return
        when_s = max(now_s, self._due_s(user) if user.ready or user.next_item_s < math.inf else user.rate_s)
        if when_s < user.heap_s:
            user.heap_s = when_s
            heapq.heappush(self._heap, (when_s, user_id))

    def _remove_if_idle(self, user_id: UserId, user: _UserState, now_s: float) -> None:
        if not (user.locked or user.ready or user.resends.is_pending or user.bounces) and user.rate_s <= now_s:
            del self._users[user_id]
