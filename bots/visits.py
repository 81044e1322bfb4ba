"""Our visits to rooms: events in, deeds out. Pure; times (monotonic s) are arguments.

A visit begins with an invitation, or with what is remembered. A room becomes one of ours when it has let us in, not
before: so nobody makes somebody's address a room by inviting us there. Whoever turns us out (ban, kick, a room that
closes or is destroyed) wants us gone: the visit ends for good. Whatever else ends our stay, we come back, later each
time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from bots import muc
from bots.link import InRoom, Invited, RoomRefused, SaidInRoom
from service.store.rooms import TOLD_KEPT

MOST_ROOMS: Final = 1_000
MOST_MANAGERS: Final = 1_000
"""Owners and admins of one room whom we know."""
MOST_NICKS: Final = 9
ANSWERS_WITHIN_S: Final = 60.0
"""Whoever invited us to what does not answer is not waited for."""
_RETRY_S: Final = (15.0, 3_600.0)
_FINAL: Final = frozenset(("forbidden", "registration-required", "gone", "item-not-found", "not-allowed"))
"""Refusals of a room that was ours which no retry will change; of others, any refusal is final."""


class Enter(msgspec.Struct, frozen=True):
    """Ask the room to let us in."""

    room: str
    nick: str
    password: str


class Leave(msgspec.Struct, frozen=True):
    """Go."""

    room: str
    nick: str


class Settle(msgspec.Struct, frozen=True):
    """The room is ours from now on: remember it, and say hello."""

    room: str
    nick: str
    password: str


class GiveUp(msgspec.Struct, frozen=True):
    """The room is ours no more: forget it and what it is told."""

    room: str


class Excuse(msgspec.Struct, frozen=True):
    """Tell who invited us that the room does not let us in."""

    to: str
    room: str


class Inside(msgspec.Struct, frozen=True):
    """We are in: what waits for the room can be said."""

    room: str


class Keep(msgspec.Struct, frozen=True):
    """Remember, also after a restart, how the room calls a message of ours: so that replies to it are understood."""

    room: str
    room_id: str
    message_id: str


Deed = Enter | Leave | Settle | GiveUp | Excuse | Inside | Keep


class _Visit:
    """One room: ours, or not yet."""

    def __init__(self, nick: str, password: str, by: str, due_s: float, *, ours: bool) -> None:
        self.nick = nick
        self.password = password
        self.by = by
        self.ours = ours
        self.inside = False
        self.attempt = 0
        self.due_s = due_s
        self.wait_s = _RETRY_S[0]
        self.managers: set[str] = set()
        self.told: OrderedDict[str, str] = OrderedDict()  # the room's id of a message of ours, and ours


class Spoken(msgspec.Struct, frozen=True):
    """What was said to us in a room; ``points_at`` is our own id of a message of ours."""

    text: str
    points_at: str
    may_change: bool


class Visits:
    """All rooms of one bot."""

    def __init__(self) -> None:
        """Know of no room yet."""
        self._visits: dict[str, _Visit] = {}

    def remember(
        self, rooms: Mapping[str, tuple[str, str]], told: Mapping[str, Mapping[str, str]], now_s: float
    ) -> None:
        """Enter these rooms again, which were ours: JID → (nick, password).

        ``told`` is how a room calls messages of ours, oldest first: JID → its id → ours.
        """
        for room, (nick, password) in rooms.items():
            visit = self._visits.setdefault(room, _Visit(nick, password, "", now_s, ours=True))
            visit.told = OrderedDict(told.get(room, {})) | visit.told

    def restart(self, now_s: float) -> None:
        """A new session: we are in no room."""
        self._visits = {room: visit for room, visit in self._visits.items() if visit.ours}
        for visit in self._visits.values():
            visit.inside, visit.due_s, visit.wait_s = False, now_s, _RETRY_S[0]
            visit.managers.clear()

    def is_ours(self, room: str) -> bool:
        """Whether this address is a room that is told things."""
        visit = self._visits.get(room)
        return visit is not None and visit.ours

    def is_manager(self, room: str, nick: str) -> bool:
        """Whether this is an owner or admin of a room of ours."""
        return self.is_ours(room) and nick in self._visits[room].managers

    def inside(self) -> Iterable[tuple[str, str]]:
        """Return the rooms we take ourselves to be in, with our nick there."""
        return [(room, visit.nick) for room, visit in self._visits.items() if visit.inside]

    def invited(self, event: Invited, now_s: float) -> list[Deed]:
        """Somebody wants us in a room."""
        if event.room in self._visits or len(self._visits) >= MOST_ROOMS:
            return []
        visit = _Visit(muc.named(0), event.password, event.by, now_s + ANSWERS_WITHIN_S, ours=False)
        self._visits[event.room] = visit
        return [Enter(event.room, visit.nick, visit.password)]

    def due(self, now_s: float) -> list[Deed]:
        """Return what is to be tried now; invitations to where nobody answers are forgotten."""
        deeds: list[Deed] = []
        for room, visit in list(self._visits.items()):
            if visit.inside or visit.due_s > now_s:
                continue
            if not visit.ours:
                del self._visits[room]
                continue
            visit.due_s = now_s + visit.wait_s
            visit.wait_s = min(visit.wait_s * 2, _RETRY_S[1])
            deeds.append(Enter(room, visit.nick, visit.password))
        return deeds

    def lost(self, room: str, now_s: float) -> None:
        """The room says that we are not in it."""
        visit = self._visits.get(room)
        if visit is not None and visit.inside:
            visit.inside, visit.due_s, visit.wait_s = False, now_s, _RETRY_S[0]
            visit.managers.clear()

    def moved(self, event: InRoom, now_s: float) -> list[Deed]:
        """Somebody came, changed, or went."""
        visit = self._visits.get(event.room)
        if visit is None:
            return []
        if event.nick == visit.nick or muc.MYSELF in event.statuses:
            return self._we_moved(event, visit, now_s)
        managing = event.present and event.affiliation in ("owner", "admin")
        if not managing:
            visit.managers.discard(event.nick)
        elif len(visit.managers) < MOST_MANAGERS:
            visit.managers.add(event.nick)
        return []

    def _we_moved(self, event: InRoom, visit: _Visit, now_s: float) -> list[Deed]:
        if event.present:
            if muc.CREATED in event.statuses and not visit.ours:
                del self._visits[event.room]  # there was no such room: we made it, and had better not
                return [Leave(event.room, event.nick)]
            fresh, visit.ours, visit.inside, visit.nick = not visit.ours, True, True, event.nick
            visit.wait_s = _RETRY_S[0]
            settled: list[Deed] = [Settle(event.room, visit.nick, visit.password)] if fresh else []
            return [*settled, Inside(event.room)]
        if event.destroyed or event.statuses & muc.TURNED_OUT:
            return self._ended(event.room)
        self.lost(event.room, now_s)
        return []

    def refused(self, event: RoomRefused) -> list[Deed]:
        """A room does not let us in."""
        visit = self._visits.get(event.room)
        if visit is None or visit.inside:
            return []
        if event.condition == "conflict" and visit.attempt + 1 < MOST_NICKS:
            visit.attempt += 1
            visit.nick = muc.named(visit.attempt)
            return [Enter(event.room, visit.nick, visit.password)]
        if visit.ours and event.condition not in _FINAL:
            return []
        excuse: list[Deed] = [] if visit.ours or visit.by == event.room else [Excuse(visit.by, event.room)]
        return [*self._ended(event.room), *excuse]

    def left(self, room: str) -> list[Deed]:
        """The room's managers want us gone."""
        nick = self._visits[room].nick
        return [Leave(room, nick), *self._ended(room)]

    def handed_over(self, room: str) -> list[Deed]:
        """Another bot of ours is in the room now, or will be."""
        visit = self._visits.pop(room, None)
        return [Leave(room, visit.nick)] if visit is not None and visit.inside else []

    def _ended(self, room: str) -> list[Deed]:
        return [GiveUp(room)] if self._visits.pop(room).ours else []

    def is_echo(self, event: SaidInRoom) -> bool:
        """Whether this is a message of ours, as all in the room get it; how the room calls it is kept."""
        visit = self._visits.get(event.room)
        if visit is None or event.nick != visit.nick:
            return False
        if event.room_id:
            visit.told[event.room_id] = event.id
            if len(visit.told) > TOLD_KEPT:
                visit.told.popitem(last=False)
        return True

    def to_us(self, event: SaidInRoom) -> Spoken | None:
        """Return what was said to us: by our name, or under a message of ours; None if it was not."""
        visit = self._visits.get(event.room)
        if visit is None or not visit.inside:
            return None
        ours = visit.told.get(event.points_at, "")
        may_change = event.nick in visit.managers
        if event.reacted:
            return Spoken(event.text, ours, may_change) if ours and may_change else None
        named = muc.addressed(event.text, visit.nick)
        if named is None and not (ours and event.text):
            return None
        return Spoken(event.text if named is None else named, ours, may_change)
