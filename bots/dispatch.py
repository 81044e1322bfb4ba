"""Who is sent to next, and what to do about what went wrong. Pure: times (monotonic s) and chance are arguments.

Each person has a *lane*, in which one thing happens at a time: a batch goes out, or a command of
theirs changes what may go out. A lane is

- *paced* by the governor, a token bucket (GCRA form): what is above the rate waits and is coalesced, and the more
  it is, the longer the next waits;
- *due later* if some of what waits may be told only then;
- *at rest* while the person wants to hear nothing, whatever is seen of them (but what it rests from is asked
  again when batches have to be looked at: a digest that was sent is not put off to the next one);
- *held* after their server sent a batch back, longer each time, but not once they are seen online;
- *unsure* when batches may be in flight whose fate we do not know: after a start, a lost session, a
  bounce. Then nothing new is claimed before those are settled, so that order is kept. What the
  server never confirmed is sent again at once. What it did confirm may have died with it: it is sent
  again if no receipt comes within 10 s of the person being seen, or within 15 s if we know nothing of
  their presence. When a person comes online with one more client, what it confirmed may lie in a session
  that nobody reads any more: it is sent again if no receipt comes within 5 s. Every resend carries the
  same message id.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Final

from service.model import UserId
from service.store.outbox import Batch

RECEIPT_WITHIN_S: Final = 10.0
RECEIPT_WITHIN_IF_UNSEEN_S: Final = 15.0
"""With a failing attempt to connect and the longest pause after it, 15 s, this is the 30 s in which all has to heal."""
RECEIPT_WITHIN_AT_RETURN_S: Final = 5.0
"""A client gets what its server kept for it as soon as it is online: this is time for the receipts of that."""
GIVE_UP_AFTER_S: Final = 14 * 86_400.0
BURST: Final = 5
"""Messages the governor lets through at once."""
AT_EASE: Final = 3
SLOWEST: Final = 6
"""A message that takes in more than ``AT_EASE`` items makes the next one wait longer, up to so many times: of a flood
there are few messages, and somebody who is told something each second is told each second."""

_NOBODY_THERE: Final = frozenset(
    {
        *("item-not-found", "gone", "jid-malformed", "remote-server-not-found", "forbidden", "not-allowed"),
        *("not-authorized", "not-acceptable"),  # the last of somebody who is blocked (XEP-0191)
    }
)
_HOLD_S: Final = (30.0, 3_600.0)
_HOLD_IF_NOBODY_THERE_S: Final = (600.0, 43_200.0)
"""The first and the longest hold after a bounce; each is twice the one before."""


class _Lane:
    """One person's state; forgotten as soon as it is the same as a new one's."""

    __slots__ = (
        *("awaiting", "bounces", "busy", "forsaken", "held_until_s", "later_s", "met", "rests_until_s"),
        *("paced_s", "planned_s", "resend_s", "resending", "returned", "unsure", "wanted"),
    )

    def __init__(self) -> None:
        self.busy = False
        self.wanted = False
        self.unsure = False
        self.forsaken = False  # what the server confirmed may be gone, too; only while unsure
        self.awaiting = False  # the receipts of that, until resend_s
        self.met = False  # seen online since the session began; only while unsure
        self.resending = False  # what the server confirmed goes again; only while busy
        self.returned = False  # forsaken only because they came online with one more client
        self.planned_s = math.inf  # when the agenda looks at it
        self.paced_s = -math.inf  # GCRA's theoretical arrival time
        self.held_until_s = -math.inf
        self.resend_s = -math.inf
        self.rests_until_s = -math.inf
        self.later_s = math.inf  # when some of what is queued may be told that may not yet
        self.bounces = 0


class Dispatch:
    """The lanes of everybody who has something to get, or had a moment ago."""

    def __init__(self, messages_per_s: float) -> None:
        """Let each person have at most this many messages a second, in bursts of ``BURST``."""
        self._interval_s = 1 / messages_per_s
        self._lanes: dict[UserId, _Lane] = {}
        self._agenda: list[tuple[float, UserId]] = []  # an entry that is not the lane's planned_s is stale

    def queued(self, uids: Iterable[UserId], now_s: float) -> None:
        """Something was put into these people's outboxes."""
        for uid in uids:
            lane = self._lane(uid)
            lane.wanted = True
            self._plan(uid, lane, now_s)

    def recover(self, uids: Iterable[UserId], now_s: float) -> None:
        """A new session: we are not sure of these people's batches in flight."""
        for uid in uids:
            lane = self._lane(uid)
            lane.wanted = lane.unsure = lane.forsaken = True
            lane.awaiting = lane.met = lane.returned = False
            lane.rests_until_s = -math.inf
            lane.resend_s = now_s + RECEIPT_WITHIN_IF_UNSEEN_S
            self._plan(uid, lane, now_s)

    def doubt(self, uids: Iterable[UserId]) -> None:
        """Something of ours broke off between claim and completion: taken lanes have to look at what is in flight."""
        for uid in uids:
            self._lane(uid).unsure = True

    def failed(self, uids: Iterable[UserId]) -> None:
        """A burst of taken lanes broke off: what it was to send again may not have been sent."""
        self.doubt(uids)
        for uid in uids:
            lane = self._lane(uid)
            lane.forsaken = lane.forsaken or lane.resending

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

    def drop(self, uid: UserId) -> None:
        """Somebody else serves this person now."""
        self._lanes.pop(uid, None)

    def busy(self) -> list[UserId]:
        """Return whose lanes are taken."""
        return [uid for uid, lane in self._lanes.items() if lane.busy]

    def rest(self, uid: UserId, until_s: float) -> None:
        """A taken lane has something to get that its person does not want before this moment."""
        lane = self._lane(uid)
        lane.wanted, lane.rests_until_s = True, until_s

    def later(self, uid: UserId, at_s: float) -> None:
        """A taken lane has something to get that may be told from this moment on; infinity for nothing."""
        self._lane(uid).later_s = at_s

    def rouse(self, uid: UserId, now_s: float) -> None:
        """The person has changed their mind about when to be told."""
        lane = self._lanes.get(uid)
        if lane is not None:
            lane.rests_until_s = -math.inf
            lane.wanted = lane.wanted or lane.later_s < math.inf
            self._plan(uid, lane, now_s)

    def is_forsaken(self, uid: UserId) -> bool:
        """Whether also the batches that the server has confirmed have to be looked at."""
        return self._lane(uid).forsaken

    def is_unsure(self, uid: UserId) -> bool:
        """Whether the batches in flight have to be looked at before anything new is claimed."""
        return self._lane(uid).unsure

    def resend(self, uid: UserId, flying: Sequence[Batch], now_s: float) -> Sequence[Batch]:
        """Return which of an unsure lane's unfinished batches (oldest first) to send again now."""
        lane = self._lane(uid)
        if lane.forsaken and now_s < lane.resend_s and any(batch.acked for batch in flying):
            lane.wanted = lane.awaiting = True
            return ()
        again = flying if lane.forsaken else [batch for batch in flying if not batch.acked]
        lane.resending = lane.forsaken
        lane.unsure = lane.forsaken = lane.awaiting = lane.returned = False
        return again

    def has_met(self, uid: UserId) -> bool:
        """Whether the person was online when confirmed batches were sent again."""
        return self._lane(uid).met

    def is_hopeless(self, uid: UserId, claimed_s: float, wall_s: float) -> bool:
        """Whether a batch claimed at ``claimed_s`` (both Unix time) has come back for so long that it is given up."""
        return self._lane(uid).bounces > 0 and wall_s - claimed_s > GIVE_UP_AFTER_S

    def sent(self, uid: UserId, items: int, now_s: float) -> None:
        """One message of so many items was written to this person: the governor counts it."""
        lane = self._lane(uid)
        slowness = min(max(1.0, items / AT_EASE), SLOWEST)
        lane.paced_s = max(lane.paced_s, now_s) + slowness * self._interval_s

    def accepted(self, uid: UserId) -> None:
        """The server took a message for this person, and it did not come back."""
        self._lane(uid).bounces = 0

    def settled(self, uid: UserId, now_s: float) -> None:
        """A receipt came: an unsure lane may be free of doubt now."""
        lane = self._lanes.get(uid)
        if lane is not None and lane.awaiting:
            lane.awaiting = False
            self._plan(uid, lane, now_s)

    def bounced(self, uid: UserId, condition: str, now_s: float, chance: float) -> None:
        """A batch came back: hold the lane, longer each time, spread by ``chance`` in [0, 1), then send it again."""
        lane = self._lane(uid)
        lane.wanted = lane.unsure = lane.forsaken = True
        lane.awaiting = lane.returned = False
        first_s, longest_s = _HOLD_IF_NOBODY_THERE_S if condition in _NOBODY_THERE else _HOLD_S
        lane.held_until_s = now_s + min(first_s * 2**lane.bounces, longest_s) * (1 + chance) / 2
        lane.resend_s = lane.held_until_s
        lane.bounces = min(lane.bounces + 1, 20)
        self._plan(uid, lane, now_s)

    def seen(self, uid: UserId, now_s: float) -> None:
        """The person is online: a held lane is tried now, an awaited receipt gets 10 s more."""
        lane = self._lanes.get(uid)
        if lane is None:
            return
        if lane.held_until_s > now_s:
            lane.held_until_s = lane.resend_s = now_s
        lane.met = True
        lane.resend_s = min(lane.resend_s, now_s + RECEIPT_WITHIN_S)
        self._plan(uid, lane, now_s)

    def returned(self, uid: UserId, now_s: float) -> None:
        """The person came online with one more client, and receipts are missing.

        Nothing new is claimed before the receipts have come, or what has none was sent again. To return once more does
        not put that off.
        """
        lane = self._lane(uid)
        lane.met = True
        if not lane.forsaken:
            lane.wanted = lane.unsure = lane.forsaken = lane.returned = True
            lane.rests_until_s = -math.inf
            lane.resend_s = now_s + RECEIPT_WITHIN_AT_RETURN_S
        self._plan(uid, lane, now_s)

    def absent(self, uid: UserId) -> None:
        """The person is known to be offline: what the server confirmed waits there, and its receipt with it.

        If only their return made us doubt that, their next return will; meanwhile the server gets what is new.
        """
        lane = self._lanes.get(uid)
        if lane is None or not lane.forsaken or lane.bounces:
            return
        lane.met = False
        if lane.returned:
            lane.forsaken = lane.awaiting = lane.returned = False
        else:
            lane.resend_s = math.inf

    def _lane(self, uid: UserId) -> _Lane:
        return self._lanes.setdefault(uid, _Lane())

    def _due_s(self, lane: _Lane) -> float:
        paced_s = lane.paced_s - (BURST - 1) * self._interval_s
        wanted_s = -math.inf if lane.wanted else lane.later_s
        resend_s = lane.resend_s if lane.awaiting else -math.inf
        return max(wanted_s, paced_s, lane.held_until_s, lane.rests_until_s, resend_s)

    def _plan(self, uid: UserId, lane: _Lane, now_s: float) -> None:
        """Have the agenda look at a lane when it is due, or else when it can be forgotten."""
        if lane.busy:
            return
        when_s = max(now_s, self._due_s(lane) if lane.wanted or lane.later_s < math.inf else lane.paced_s)
        if when_s < lane.planned_s:
            lane.planned_s = when_s
            heapq.heappush(self._agenda, (when_s, uid))

    def _forget_if_idle(self, uid: UserId, lane: _Lane, now_s: float) -> None:
        if not (lane.busy or lane.wanted or lane.unsure or lane.bounces) and lane.paced_s <= now_s:
            del self._lanes[uid]
