"""The scheduler of deliveries: whom to send to next, and what to send again. Pure: times (monotonic s) are arguments.

Each person has a *lane*, in which one thing happens at a time: a batch is sent, or a command changes what may be
sent. A lane

- is limited by a token bucket (GCRA). What exceeds the rate waits and is coalesced; a message of many items delays the
  next one longer;
- has a time for items that may only be sent later (intervals), and one before which nothing is sent (quiet hours,
  digests). The second is cleared when batches in flight have to be examined: a digest that was sent does not wait for
  the next one;
- is held after a bounce, twice as long each time, until the person is seen online;
- has a :class:`Doubt` while the fate of batches in flight is unknown: after a start, a lost session, a bounce. Nothing
  new is claimed before it is settled, so that order is kept. What the server did not confirm is sent again at once.
  What it did confirm may be lost with it: it is sent again without a receipt within 10 s of the person being seen,
  or within 15 s if their presence is unknown. When a person comes online with one more client, it may lie in a
  session that nobody reads: it is sent again without a receipt within 5 s. Every resend has the same message id.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from service.model import UserId
from service.store.delivery.outbox import Batch

RECEIPT_TIMEOUT_S: Final = 10.0
RECEIPT_TIMEOUT_IF_UNSEEN_S: Final = 15.0
"""With a failing attempt to connect and the longest pause after it, 15 s, this is the 30 s in which all has to heal."""
RECEIPT_TIMEOUT_AT_RETURN_S: Final = 5.0
"""A client gets what its server kept for it as soon as it is online: this is time for the receipts of that."""
GIVE_UP_AFTER_S: Final = 14 * 86_400.0
BURST: Final = 5
"""Messages the governor lets through at once."""
AT_EASE: Final = 3
SLOWEST: Final = 6
"""A message of more than ``AT_EASE`` items delays the next one longer, up to ``SLOWEST`` times the usual interval."""

_NOBODY_THERE: Final = frozenset(
    {
        *("item-not-found", "gone", "jid-malformed", "remote-server-not-found", "forbidden", "not-allowed"),
        *("not-authorized", "not-acceptable"),  # the last of somebody who is blocked (XEP-0191)
    }
)
_HOLD_S: Final = (30.0, 3_600.0)
_HOLD_IF_NOBODY_THERE_S: Final = (600.0, 43_200.0)
"""The first and the longest hold after a bounce; each is twice the one before."""


class Doubt(IntEnum):
    """Which batches in flight have to be examined before anything new is claimed."""

    NONE = 0
    UNCONFIRMED = 1
    """Those that the server has not confirmed."""
    RETURN = 2
    """All of them, only because the person came online with one more client."""
    ALL = 3
    """All of them."""


class _Lane(msgspec.Struct):
    """One person's state; removed as soon as it equals a new one's."""

    busy: bool = False
    wanted: bool = False  # something may be queued
    doubt: Doubt = Doubt.NONE
    awaiting: bool = False  # nothing is done before resend_s, or a receipt
    resending: bool = False  # confirmed batches are sent again; only while busy
    seen_online: bool = False  # since the doubt began
    bounces: int = 0
    planned_s: float = math.inf  # the lane's entry in the agenda
    paced_s: float = -math.inf  # GCRA's theoretical arrival time
    held_until_s: float = -math.inf
    rests_until_s: float = -math.inf
    later_s: float = math.inf  # when queued items may be sent that may not be sent yet
    resend_s: float = -math.inf  # until when the receipts of confirmed batches may come


class DeliveryScheduler:
    """The lanes of all people who have something to receive, or had a moment ago."""

    def __init__(self, messages_per_s: float, serves: Callable[[UserId], bool]) -> None:
        """Send each person at most this many messages a second, in bursts of ``BURST``; only those it ``serves``."""
        self._interval_s = 1 / messages_per_s
        self._serves = serves
        self._lanes: dict[UserId, _Lane] = {}
        self._agenda: list[tuple[float, UserId]] = []  # an entry that is not the lane's planned_s is stale

    # What happened.

    def queued(self, uids: Iterable[UserId], now_s: float) -> None:
        """Items were queued for these people."""
        for uid in uids:
            lane = self._lane(uid)
            lane.wanted = True
            self._plan(uid, lane, now_s)

    def recover(self, uids: Iterable[UserId], now_s: float) -> None:
        """A new session began: doubt all batches in flight of these people."""
        for uid in uids:
            lane = self._lane(uid)
            lane.seen_online = False
            self._doubt_all(lane, now_s + RECEIPT_TIMEOUT_IF_UNSEEN_S)
            lane.rests_until_s = -math.inf
            self._plan(uid, lane, now_s)

    def doubt(self, uids: Iterable[UserId]) -> None:
        """Something broke off between claim and completion: doubt these people's unconfirmed batches."""
        for uid in uids:
            lane = self._lane(uid)
            lane.doubt = max(lane.doubt, Doubt.UNCONFIRMED)

    def failed(self, uids: Iterable[UserId]) -> None:
        """Sending to these taken lanes broke off: what was to be sent again may not have been."""
        self.doubt(uids)
        for uid in uids:
            lane = self._lane(uid)
            if lane.resending:
                lane.doubt = Doubt.ALL

    def sent(self, uid: UserId, items: int, now_s: float) -> None:
        """Count one message of so many items towards the person's rate."""
        lane = self._lane(uid)
        slowness = min(max(1.0, items / AT_EASE), SLOWEST)
        lane.paced_s = max(lane.paced_s, now_s) + slowness * self._interval_s

    def accepted(self, uid: UserId) -> None:
        """The server took a message for this person, and it did not come back."""
        self._lane(uid).bounces = 0

    def settled(self, uid: UserId, now_s: float) -> None:
        """A receipt came: the doubt may be settled now."""
        lane = self._lanes.get(uid)
        if lane is not None and lane.awaiting:
            lane.awaiting = False
            self._plan(uid, lane, now_s)

    def bounced(self, uid: UserId, condition: str, now_s: float, chance: float) -> None:
        """A batch came back: hold the lane, longer each time, spread by ``chance`` in [0, 1), then send it again."""
        lane = self._lane(uid)
        first_s, longest_s = _HOLD_IF_NOBODY_THERE_S if condition in _NOBODY_THERE else _HOLD_S
        lane.held_until_s = now_s + min(first_s * 2**lane.bounces, longest_s) * (1 + chance) / 2
        lane.bounces = min(lane.bounces + 1, 20)
        self._doubt_all(lane, lane.held_until_s)
        self._plan(uid, lane, now_s)

    def seen(self, uid: UserId, now_s: float) -> None:
        """The person is online: a held lane is tried now, an awaited receipt gets 10 s more."""
        lane = self._lanes.get(uid)
        if lane is None:
            return
        if lane.held_until_s > now_s:
            lane.held_until_s = lane.resend_s = now_s
        lane.seen_online = True
        lane.resend_s = min(lane.resend_s, now_s + RECEIPT_TIMEOUT_S)
        self._plan(uid, lane, now_s)

    def returned(self, uid: UserId, now_s: float) -> None:
        """The person came online with one more client, and receipts are missing.

        Another return while the receipts are awaited does not extend the time for them.
        """
        lane = self._lane(uid)
        lane.seen_online = True
        if lane.doubt < Doubt.RETURN:
            lane.wanted, lane.doubt = True, Doubt.RETURN
            lane.rests_until_s = -math.inf
            lane.resend_s = now_s + RECEIPT_TIMEOUT_AT_RETURN_S
        self._plan(uid, lane, now_s)

    def absent(self, uid: UserId) -> None:
        """The person is known to be offline: what the server confirmed waits there, and its receipt with it.

        A doubt that only their return raised ends: their next return raises it again, and meanwhile the server gets
        what is new.
        """
        lane = self._lanes.get(uid)
        if lane is None or lane.doubt < Doubt.RETURN or lane.bounces:
            return
        lane.seen_online = False
        if lane.doubt is Doubt.RETURN:
            lane.doubt, lane.awaiting = Doubt.UNCONFIRMED, False
        else:
            lane.resend_s = math.inf

    def rouse(self, uid: UserId, now_s: float) -> None:
        """The person changed when they want messages."""
        lane = self._lanes.get(uid)
        if lane is not None:
            lane.rests_until_s = -math.inf
            lane.wanted = lane.wanted or lane.later_s < math.inf
            self._plan(uid, lane, now_s)

    # Whose turn it is.

    def take(self, most: int, now_s: float) -> list[UserId]:
        """Return people to send to now, their lanes taken; each is given back by :meth:`release`."""
        taken: list[UserId] = []
        while self._agenda and self._agenda[0][0] <= now_s and len(taken) < most:
            planned_s, uid = heapq.heappop(self._agenda)
            lane = self._lanes.get(uid)
            if lane is None or planned_s != lane.planned_s:
                continue
            lane.planned_s = math.inf
            if lane.busy or (not lane.wanted and lane.later_s == math.inf):
                self._forget_if_idle(uid, lane, now_s)
            elif self._due_s(lane) > now_s:
                self._plan(uid, lane, now_s)
            elif not self._serves(uid):  # another process does now
                del self._lanes[uid]
            else:
                lane.busy, lane.wanted, lane.later_s = True, False, math.inf
                taken.append(uid)
        return taken

    def next_s(self) -> float:
        """Return when :meth:`take` may have somebody; infinity if there is nothing to do."""
        return self._agenda[0][0] if self._agenda else math.inf

    def enter(self, uid: UserId) -> bool:
        """Take one lane for a command; False if it is taken."""
        lane = self._lane(uid)
        if lane.busy:
            return False
        lane.busy = True
        return True

    def release(self, uid: UserId, now_s: float, *, again: bool = False) -> None:
        """Give a lane back; ``again`` if there may be more to send."""
        lane = self._lane(uid)
        lane.busy = lane.resending = False
        lane.wanted = lane.wanted or again
        self._plan(uid, lane, now_s)

    def is_busy_for_others(self) -> bool:
        """Whether a lane is taken of somebody whom another process serves now."""
        return any(lane.busy and not self._serves(uid) for uid, lane in self._lanes.items())

    # What is decided of a taken lane.

    def rest(self, uid: UserId, until_s: float) -> None:
        """Send nothing of what waits before this moment."""
        lane = self._lane(uid)
        lane.wanted, lane.rests_until_s = True, until_s

    def later(self, uid: UserId, at_s: float) -> None:
        """Some of what waits may be sent from this moment on; infinity for nothing."""
        self._lane(uid).later_s = at_s

    def is_unsure(self, uid: UserId) -> bool:
        """Whether batches in flight have to be examined before anything new is claimed."""
        return self._lane(uid).doubt > Doubt.NONE

    def doubts_confirmed(self, uid: UserId) -> bool:
        """Whether batches that the server confirmed have to be examined as well."""
        return self._lane(uid).doubt >= Doubt.RETURN

    def resend(self, uid: UserId, flying: Sequence[Batch], now_s: float) -> Sequence[Batch]:
        """Settle the doubt; return which of the batches in flight (oldest first) to send again now.

        While receipts of confirmed batches may still come, return nothing and keep the doubt.
        """
        lane = self._lane(uid)
        doubts_confirmed = lane.doubt >= Doubt.RETURN
        if doubts_confirmed and now_s < lane.resend_s and any(batch.acked for batch in flying):
            lane.wanted = lane.awaiting = True
            return ()
        lane.doubt, lane.awaiting, lane.resending = Doubt.NONE, False, doubts_confirmed
        return flying if doubts_confirmed else [batch for batch in flying if not batch.acked]

    def seen_online(self, uid: UserId) -> bool:
        """Whether the person was online when confirmed batches were sent again."""
        return self._lane(uid).seen_online

    def is_hopeless(self, uid: UserId, claimed_s: float, wall_s: float) -> bool:
        """Whether a batch claimed at ``claimed_s`` (both Unix time) has come back for so long that it is given up."""
        return self._lane(uid).bounces > 0 and wall_s - claimed_s > GIVE_UP_AFTER_S

    def _lane(self, uid: UserId) -> _Lane:
        return self._lanes.setdefault(uid, _Lane())

    def _doubt_all(self, lane: _Lane, resend_s: float) -> None:
        lane.wanted, lane.doubt, lane.awaiting, lane.resend_s = True, Doubt.ALL, False, resend_s

    def _due_s(self, lane: _Lane) -> float:
        paced_s = lane.paced_s - (BURST - 1) * self._interval_s
        wanted_s = -math.inf if lane.wanted else lane.later_s
        resend_s = lane.resend_s if lane.awaiting else -math.inf
        return max(wanted_s, paced_s, lane.held_until_s, lane.rests_until_s, resend_s)

    def _plan(self, uid: UserId, lane: _Lane, now_s: float) -> None:
        """Put a lane into the agenda for when it is due, or else for when it can be removed."""
        if lane.busy:
            return
        when_s = max(now_s, self._due_s(lane) if lane.wanted or lane.later_s < math.inf else lane.paced_s)
        if when_s < lane.planned_s:
            lane.planned_s = when_s
            heapq.heappush(self._agenda, (when_s, uid))

    def _forget_if_idle(self, uid: UserId, lane: _Lane, now_s: float) -> None:
        if not (lane.busy or lane.wanted or lane.doubt or lane.bounces) and lane.paced_s <= now_s:
            del self._lanes[uid]
