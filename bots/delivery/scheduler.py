"""The scheduler of deliveries: decides which user is sent to next, and when.

It performs no I/O and reads no clock; times (monotonic s) are arguments.

Work for one user is serialized by a lock. The lock is held by a burst that sends to the user, or by a command that
changes what may be sent. Besides the lock, each user has

- a rate limit (:mod:`bots.delivery.message_rate_limit`);
- a *next item time*: the earliest time when an item that was delayed by a notification interval becomes due;
- a *deferral*: nothing is sent before the end of quiet hours, or before the next digest. A deferral ends when batches
  in flight have to be recovered, so that a digest that was sent does not wait for the next digest;
- a *back-off*: after a bounce, nothing is sent for some time, or until the user is seen online
  (:mod:`bots.delivery.bounce_backoff`);
- a pending *recovery*, while it is unknown whether batches in flight have arrived (:mod:`bots.delivery.resend_policy`).
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
    """The state of one user. A state that no longer differs from the state of a new user is removed."""

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
    """The states of all users who have queued items, or recently had some. Times are monotonic s."""

    def __init__(self, messages_per_s: float, is_assigned: Callable[[UserId], bool]) -> None:
        """Create a scheduler without users.

        A user is sent ``messages_per_s`` messages per second on average, and up to ``BURST`` messages at once.
        ``is_assigned`` returns whether this process serves a user.
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
        """Require recovery of all batches in flight to these users, because the session that sent them ended."""
        for user_id in user_ids:
            user = self._state(user_id)
            user.resends.on_session_lost(now_s)
            user.ready, user.deferred_until_s = True, -math.inf
            self._schedule(user_id, user, now_s)

    def require_recovery(self, user_ids: Iterable[UserId]) -> None:
        """Require recovery of these users' unacknowledged batches, because a failure prevented their completion."""
        for user_id in user_ids:
            self._state(user_id).resends.require()

    def on_send_failed(self, user_ids: Iterable[UserId]) -> None:
        """Require recovery of these users' batches, because the burst that was sending to them failed.

        If the burst was sending acknowledged batches of a user again, all the user's batches in flight are recovered,
        otherwise only the unacknowledged ones.
        """
        for user_id in user_ids:
            self._state(user_id).resends.on_send_failed()

    def on_sending(self, user_id: UserId, item_count: int, now_s: float) -> None:
        """Charge one message of ``item_count`` items to the user's rate limit."""
        user = self._state(user_id)
        user.rate_s = self._rate_limit.after_message(user.rate_s, item_count, now_s)

    def on_accepted(self, user_id: UserId) -> None:
        """Reset the user's count of bounces, because the server acknowledged a message that did not bounce."""
        self._state(user_id).bounces = 0

    def on_receipt(self, user_id: UserId, now_s: float) -> None:
        """Examine the user's batches in flight at once, if the scheduler was waiting for their receipts."""
        user = self._users.get(user_id)
        if user is not None and user.resends.on_receipt():
            self._schedule(user_id, user, now_s)

    def on_bounced(self, user_id: UserId, condition: str, now_s: float, jitter: float) -> None:
        """Start a back-off after a bounce; when it ends, the user's batches in flight are sent again.

        The back-off doubles with each consecutive bounce. ``condition`` is the name of the stanza error, and ``jitter``
        a random number in [0, 1), as for :func:`~bots.delivery.bounce_backoff.back_off_s`.
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

        Another new client does not extend the wait for the receipts of these batches.
        """
        user = self._state(user_id)
        if user.resends.on_new_client(now_s):
            user.ready, user.deferred_until_s = True, -math.inf
        self._schedule(user_id, user, now_s)

    def on_offline(self, user_id: UserId) -> None:
        """Stop waiting for receipts of a user who went offline, because the user's server keeps acknowledged messages.

        A full recovery (of all batches in flight) that was required only because of a new client is reduced to the
        unacknowledged batches; the next new client requires a full recovery again. A full recovery that was required
        for another reason waits until the user is online.
        """
        user = self._users.get(user_id)
        if user is not None and not user.bounces:
            user.resends.on_offline()

    def end_deferral(self, user_id: UserId, now_s: float) -> None:
        """Examine all queued items of a user now, because the user's settings changed or the user became available."""
        user = self._users.get(user_id)
        if user is not None:
            user.deferred_until_s = -math.inf
            user.ready = user.ready or user.next_item_s < math.inf
            self._schedule(user_id, user, now_s)

    # Locks.

    def acquire_due(self, max_count: int, now_s: float) -> list[UserId]:
        """Lock up to ``max_count`` users who are due, and return them; the caller passes each to :meth:`release`."""
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
        """Lock a user; return False if the user is locked already."""
        user = self._state(user_id)
        if user.locked:
            return False
        user.locked = True
        return True

    def release(self, user_id: UserId, now_s: float, *, again: bool = False) -> None:
        """Unlock a user; ``again`` states whether there may be more to send, so that the user is scheduled again."""
        user = self._state(user_id)
        user.locked = user.resends.resending_acked = False
        user.ready = user.ready or again
        self._schedule(user_id, user, now_s)

    def has_locked_unassigned(self) -> bool:
        """Return whether any user is locked who is no longer assigned to this process."""
        return any(user.locked and not self._is_assigned(user_id) for user_id, user in self._users.items())

    # Decisions about a locked user.

    def defer(self, user_id: UserId, until_s: float) -> None:
        """Delay all messages to a user until ``until_s`` (monotonic s)."""
        user = self._state(user_id)
        user.ready, user.deferred_until_s = True, until_s

    def set_next_item(self, user_id: UserId, due_s: float) -> None:
        """Set the time of the next examination of a user's queued items.

        ``due_s`` (monotonic s) is the earliest time when an item that was delayed by a notification interval becomes
        due. It is infinity if no item is delayed.
        """
        self._state(user_id).next_item_s = due_s

    def needs_recovery(self, user_id: UserId) -> bool:
        """Return whether batches in flight to a user must be examined before a new batch is claimed."""
        return self._state(user_id).resends.is_pending

    def needs_full_recovery(self, user_id: UserId) -> bool:
        """Return whether all batches in flight to a user must be examined, also those that the server acknowledged."""
        return self._state(user_id).resends.is_full

    def recover(self, user_id: UserId, in_flight: Sequence[Batch], now_s: float) -> Sequence[Batch]:
        """Finish a recovery; return the batches that have to be sent again now, oldest first.

        ``in_flight`` are the user's batches in flight, oldest first. While receipts of acknowledged batches may still
        arrive, no batch is returned and the recovery remains pending.
        """
        user = self._state(user_id)
        again = user.resends.finish(in_flight, now_s)
        if again is None:
            user.ready = True
            return ()
        return again

    def was_online(self, user_id: UserId) -> bool:
        """Return whether the user has been online since a recovery of all batches in flight was last required."""
        return self._state(user_id).resends.was_online

    def is_undeliverable(self, user_id: UserId, claimed_s: float, wall_s: float) -> bool:
        """Return whether a batch is too old to be sent again to a user whose messages bounce.

        The result is False if the user's last message did not bounce.

        ``claimed_s`` is the time at which the batch was claimed, and ``wall_s`` the current time (both Unix s).
        """
        return self._state(user_id).bounces > 0 and wall_s - claimed_s > GIVE_UP_AFTER_S

    def _state(self, user_id: UserId) -> _UserState:
        return self._users.setdefault(user_id, _UserState())

    def _due_s(self, user: _UserState) -> float:
        rate_s = self._rate_limit.next_message_s(user.rate_s)
        ready_s = -math.inf if user.ready else user.next_item_s
        return max(ready_s, rate_s, user.back_off_until_s, user.deferred_until_s, user.resends.not_before_s)

    def _schedule(self, user_id: UserId, user: _UserState, now_s: float) -> None:
        """Put an unlocked user into the heap, at the time when the scheduler next has to look at the user.

        This is the time when the user becomes due, or the time when the user's state can be removed.
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
