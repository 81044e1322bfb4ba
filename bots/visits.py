"""Our visits to rooms: events in, deeds out. Pure; times (monotonic s) are arguments.

A visit begins with an invitation, or with what is remembered. Each time, the address is asked first whether it is a
group chat (service discovery), then it is asked to let us in, and its presence for us (status 110) admits us. A room
becomes one of ours then, not before: so nobody makes somebody's address a room by inviting us there. What is said in it
counts from the moment the visit is settled, that is, once nobody suspended turns out to be behind it.

Whoever turns us out (ban, kick, a room that closes or is destroyed) wants us gone: the visit ends for good. Whatever
else ends our stay, we come back, later each time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from bots import muc
from bots.link import InRoom, Invited, RoomRefused, SaidInRoom
from service.model import UserId
from service.net.sites import site_of_jid
from service.store.keys import user_id
from service.store.rooms import TOLD_KEPT, Room

MOST_ROOMS: Final = 1_000
MOST_ROOMS_OF_A_SITE: Final = 500
"""Rooms on the servers of one registrable domain, and rooms to which its people have invited us."""
MOST_ROOMS_OF_AN_INVITER: Final = 50
MOST_MANAGERS: Final = 100
"""Owners and admins of one room whom we know."""
MOST_GUESTS: Final = 200
"""Others in one room whose JID we know."""
MOST_NICKS: Final = 9
ANSWERS_WITHIN_S: Final = 60.0
"""Whoever invited us to what does not answer is not waited for."""
_RETRY_S: Final = (15.0, 3_600.0)
_FINAL: Final = frozenset(("forbidden", "registration-required", "gone", "item-not-found", "not-allowed"))
"""Refusals of a room that was ours which no retry will change; of others, any refusal is final."""


class Check(msgspec.Struct, frozen=True):
    """Ask the address whether it is a group chat; the answer is for :meth:`Visits.checked`."""

    room: str


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
    """The room has let us in: unless one of ``people`` is suspended, remember it and call :meth:`Visits.settled`.

    ``people`` are who invited us and the owners who are there, as far as their JIDs are known; ``is_new``: the room was
    not ours before.
    """

    room: str
    kept: Room
    people: frozenset[UserId]
    is_new: bool


class GiveUp(msgspec.Struct, frozen=True):
    """The room is ours no more: forget it and what it is told."""

    room: str


class Drop(msgspec.Struct, frozen=True):
    """The room did not become ours: nothing of it is kept."""

    room: str


class Excuse(msgspec.Struct, frozen=True):
    """Tell who invited us, and was vouched for, why we do not come."""

    to: str
    room: str
    reason: Literal["refused", "no group chat", "too many rooms"]


class Inside(msgspec.Struct, frozen=True):
    """We are in: what waits for the room can be said."""

    room: str


class Keep(msgspec.Struct, frozen=True):
    """Remember, also after a restart, how the room calls a message of ours: so that replies to it are understood."""

    room: str
    room_id: str
    message_id: str


Deed = Check | Enter | Leave | Settle | GiveUp | Drop | Excuse | Inside | Keep


class _Visit:
    """One room: ours, or not yet.

    It is ``asked`` to let us in, then we are ``admitted``, then ``inside``. ``by`` is who invited us, "" unless vouched
    for. Occupants are kept by hashes of their nicks: names may be long.
    """

    def __init__(self, nick: str, password: str, by: str, due_s: float, *, ours: bool) -> None:
        self.nick = nick
        self.password = password
        self.by = by
        self.ours = ours
        self.attempt = 0
        self.wait_s = _RETRY_S[0]
        self.told: OrderedDict[str, str] = OrderedDict()  # the room's id of a message of ours, and ours
        self.reset(due_s)

    def reset(self, due_s: float) -> None:
        """We are not in the room, and have not asked it; that is to be tried at ``due_s``."""
        self.asked = self.admitted = self.inside = False
        self.due_s = due_s
        self.managers: dict[str, UserId] = {}  # with their own ids, "" for who hides their JID
        self.guests: dict[str, UserId] = {}
        self.owners: set[str] = set()

    def see(self, event: InRoom) -> None:
        """Note who is there, and what they may do."""
        nick, person = user_id(event.nick), user_id(event.jid) if event.jid else ""
        for each in (self.managers, self.guests):
            each.pop(nick, None)
        self.owners.discard(nick)
        if not event.present:
            return
        if event.affiliation in ("owner", "admin"):
            if len(self.managers) < MOST_MANAGERS:
                self.managers[nick] = person
                if event.affiliation == "owner":
                    self.owners.add(nick)
        elif person and len(self.guests) < MOST_GUESTS:
            self.guests[nick] = person

    def people(self) -> frozenset[UserId]:
        """Return who invited us and which owners are there, as far as they are known."""
        known = {self.managers[nick] for nick in self.owners} - {""}
        return frozenset(known | {user_id(self.by)} if self.by else known)


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

    def remember(self, rooms: Mapping[str, Room], told: Mapping[str, Mapping[str, str]], now_s: float) -> None:
        """Enter these rooms again, which were ours.

        ``told`` is how a room calls messages of ours, oldest first: JID → its id → ours.
        """
        for room, kept in rooms.items():
            visit = self._visits.setdefault(room, _Visit(kept.nick, kept.password, kept.by, now_s, ours=True))
            visit.told = OrderedDict(told.get(room, {})) | visit.told

    def restart(self, now_s: float) -> list[Deed]:
        """A new session: we are in no room."""
        dropped: list[Deed] = [Drop(room) for room, visit in self._visits.items() if not visit.ours]
        self._visits = {room: visit for room, visit in self._visits.items() if visit.ours}
        for visit in self._visits.values():
            visit.reset(now_s)
            visit.wait_s = _RETRY_S[0]
        return dropped

    def is_ours(self, room: str) -> bool:
        """Whether this address is a room that is told things."""
        visit = self._visits.get(room)
        return visit is not None and visit.ours

    def is_visited(self, room: str) -> bool:
        """Whether this address is a room of ours, or may become one."""
        return room in self._visits

    def is_inside(self, room: str) -> bool:
        """Whether what is said in this room counts."""
        visit = self._visits.get(room)
        return visit is not None and visit.inside

    def is_manager(self, room: str, nick: str) -> bool:
        """Whether this is an owner or admin of a room of ours."""
        return self.is_inside(room) and user_id(nick) in self._visits[room].managers

    def person(self, room: str, nick: str) -> UserId:
        """Return who somebody in a room is, "" if the room hides that."""
        visit = self._visits.get(room)
        key = user_id(nick)
        return (visit.managers.get(key) or visit.guests.get(key) or "") if visit is not None else ""

    def inside(self) -> Iterable[tuple[str, str]]:
        """Return the rooms we take ourselves to be in, with our nick there."""
        return [(room, visit.nick) for room, visit in self._visits.items() if visit.inside]

    def people(self) -> dict[str, frozenset[UserId]]:
        """Return the rooms that we are in, with who invited us and the owners who are there, if they are known."""
        return {room: visit.people() for room, visit in self._visits.items() if visit.inside}

    def invited(self, event: Invited, now_s: float) -> list[Deed]:
        """Somebody who may wants us in a room."""
        by = event.by if event.is_vouched else ""
        if event.room in self._visits:
            return []
        if not self._has_space(event.room, by):
            return [Excuse(by, event.room, "too many rooms")] if by else []
        self._visits[event.room] = _Visit(muc.named(0), event.password, by, now_s + ANSWERS_WITHIN_S, ours=False)
        return [Check(event.room)]

    def _has_space(self, room: str, by: str) -> bool:
        """Return whether there may be one room more, here and of this inviter."""
        if len(self._visits) >= MOST_ROOMS:
            return False
        service, home = site_of_jid(room), site_of_jid(by)
        here = of_site = of_inviter = 0
        for other, visit in self._visits.items():
            here += site_of_jid(other) == service
            of_site += bool(by) and site_of_jid(visit.by) == home
            of_inviter += bool(by) and visit.by == by
        return max(here, of_site) < MOST_ROOMS_OF_A_SITE and of_inviter < MOST_ROOMS_OF_AN_INVITER

    def checked(self, room: str, *, is_group_chat: bool | None) -> list[Deed]:
        """The address has said whether it is a group chat; None: it has not said so clearly."""
        visit = self._visits.get(room)
        if visit is None or visit.asked:
            return []
        if is_group_chat:
            visit.asked = True
            return [Enter(room, visit.nick, visit.password)]
        if visit.ours and is_group_chat is None:
            return []
        excuse: list[Deed] = [Excuse(visit.by, room, "no group chat")] if visit.by and not visit.ours else []
        return [*self._ended(room), *excuse]

    def due(self, now_s: float) -> list[Deed]:
        """Return what is to be tried now; invitations to where nobody answers are forgotten."""
        deeds: list[Deed] = []
        for room, visit in list(self._visits.items()):
            if visit.admitted or visit.due_s > now_s:
                continue
            if not visit.ours:
                deeds += [Leave(room, visit.nick)] if visit.asked else []
                deeds += self._ended(room)
                continue
            visit.reset(now_s + visit.wait_s)
            visit.wait_s = min(visit.wait_s * 2, _RETRY_S[1])
            deeds.append(Check(room))
        return deeds

    def lost(self, room: str, now_s: float) -> None:
        """The room says that we are not in it."""
        visit = self._visits.get(room)
        if visit is not None and visit.admitted:
            visit.reset(now_s)
            visit.wait_s = _RETRY_S[0]

    def moved(self, event: InRoom, now_s: float) -> list[Deed]:
        """Somebody came, changed, or went; where we have not asked to be let in, that means nothing."""
        visit = self._visits.get(event.room)
        if visit is None or not visit.asked:
            return []
        if event.present and not visit.admitted:
            is_own = muc.MYSELF in event.statuses and (event.nick == visit.nick or muc.RENAMED in event.statuses)
        else:
            is_own = event.nick == visit.nick or muc.MYSELF in event.statuses
        if is_own:
            return self._we_moved(event, visit, now_s)
        visit.see(event)
        return []

    def _we_moved(self, event: InRoom, visit: _Visit, now_s: float) -> list[Deed]:
        if event.present:
            if muc.CREATED in event.statuses:  # there was no such room: we made it, and had better not
                visit.reset(now_s + visit.wait_s)
                return [Leave(event.room, event.nick), *([] if visit.ours else self._ended(event.room))]
            visit.nick = event.nick
            if visit.admitted:
                return []
            is_new, visit.ours, visit.admitted = not visit.ours, True, True
            visit.wait_s = _RETRY_S[0]
            return [Settle(event.room, Room(visit.nick, visit.password, visit.by), visit.people(), is_new)]
        if event.destroyed or event.statuses & muc.TURNED_OUT:
            return self._ended(event.room)
        self.lost(event.room, now_s)
        return []

    def settled(self, room: str) -> list[Deed]:
        """Nobody suspended is behind the room: from now on what is said there counts."""
        visit = self._visits.get(room)
        if visit is None or not visit.admitted:
            return []
        visit.inside = True
        return [Inside(room)]

    def suspended(self, room: str, now_s: float, *, is_new: bool) -> list[Deed]:
        """Somebody suspended is behind the room: leave, and forget it if it is new, else look again later."""
        visit = self._visits.get(room)
        if visit is None or not visit.admitted:
            return []
        visit.reset(now_s + _RETRY_S[1])
        visit.ours = not is_new
        return [Leave(room, visit.nick), *(self._ended(room) if is_new else [])]

    def refused(self, event: RoomRefused) -> list[Deed]:
        """A room does not let us in."""
        visit = self._visits.get(event.room)
        if visit is None or visit.admitted or not visit.asked:
            return []
        if event.condition == "conflict" and visit.attempt + 1 < MOST_NICKS:
            visit.attempt += 1
            visit.nick = muc.named(visit.attempt)
            return [Enter(event.room, visit.nick, visit.password)]
        if visit.ours and event.condition not in _FINAL:
            return []
        excuse: list[Deed] = [Excuse(visit.by, event.room, "refused")] if visit.by and not visit.ours else []
        return [*self._ended(event.room), *excuse]

    def left(self, room: str) -> list[Deed]:
        """The room's managers want us gone."""
        visit = self._visits.get(room)
        return [Leave(room, visit.nick), *self._ended(room)] if visit is not None else []

    def handed_over(self, room: str) -> list[Deed]:
        """Another bot of ours is in the room now, or will be."""
        visit = self._visits.pop(room, None)
        return [Leave(room, visit.nick)] if visit is not None and visit.asked else []

    def _ended(self, room: str) -> list[Deed]:
        return [GiveUp(room)] if self._visits.pop(room).ours else [Drop(room)]

    def is_echo(self, event: SaidInRoom) -> bool:
        """Whether this is a message of ours, as all in the room get it; how the room calls it is kept."""
        visit = self._visits.get(event.room)
        if visit is None or not visit.inside or event.nick != visit.nick:
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
        may_change = user_id(event.nick) in visit.managers
        if event.reacted:
            return Spoken(event.text, ours, may_change) if ours and may_change else None
        named = muc.addressed(event.text, visit.nick)
        if named is None and not (ours and event.text):
            return None
        return Spoken(event.text if named is None else named, ours, may_change)
