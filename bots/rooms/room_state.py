"""The state of the bot's stay in each room: events in, actions out. Pure; times (monotonic s) are arguments.

A visit begins with an invitation, or with a stored room. Before each entry the address is asked whether it is a group
chat (service discovery, ADR 49). Then the bot asks to enter, and its own presence (status 110) admits it: from then
on the room is ours, not before, so that nobody makes somebody's address a room by an invitation. What is said in the
room counts once the visit is settled, that is, once nobody suspended turned out to be behind it.

A ban, a kick, or the end of a room ends the visit for good. After any other loss the bot enters again, with back-off.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, Literal

import msgspec
from cachetools import FIFOCache

from bots.replies.conversation import AFTER_NICK
from bots.xmpp.events import OccupantPresence, RoomInvitation, RoomJoinRefused, RoomMessageReceived
from bots.xmpp.service_discovery import BOT_NAME
from service.model import UserId
from service.net.sites import site_of, site_of_jid
from service.store.client.keys import user_id
from service.store.people.rooms import MAX_MESSAGE_IDS, Room

CREATED: Final = "201"
MYSELF: Final = "110"
RENAMED: Final = "210"
"""The room gave us another nick than we asked for."""
TURNED_OUT: Final = frozenset(("301", "307", "321", "322"))
"""Banned, kicked, no longer a member, or no longer open to strangers."""

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
"""An invitation to an address that does not answer within this time is dropped."""
_RETRY_S: Final = (15.0, 3_600.0)
_FINAL: Final = frozenset(("forbidden", "registration-required", "gone", "item-not-found", "not-allowed"))
"""Refusals of a room that was ours which no retry will change; of others, any refusal is final."""
_MANAGERS: Final = ("owner", "admin")


class Check(msgspec.Struct, frozen=True):
    """Ask the address whether it is a group chat; the answer is for :meth:`Visits.checked`."""

    room: str


class Enter(msgspec.Struct, frozen=True):
    """Ask the room to let us in."""

    room: str
    nick: str
    password: str


class Leave(msgspec.Struct, frozen=True):
    """Leave the room."""

    room: str
    nick: str


class Settle(msgspec.Struct, frozen=True):
    """The room has let us in: unless one of ``people`` is suspended, store it and call :meth:`Visits.settled`.

    ``people`` are who invited us and the owners who are there, as far as their JIDs are known; ``is_new``: the room was
    not ours before.
    """

    room: str
    kept: Room
    people: frozenset[UserId]
    is_new: bool


class GiveUp(msgspec.Struct, frozen=True):
    """The room is ours no more: delete it and its subscriptions."""

    room: str


class Drop(msgspec.Struct, frozen=True):
    """The room did not become ours: nothing of it is kept."""

    room: str


class Excuse(msgspec.Struct, frozen=True):
    """Tell who invited us, and was vouched for, why we do not come."""

    to: str
    room: str
    reason: Literal["refused", "no group chat", "too many rooms"]


Deed = Check | Enter | Leave | Settle | GiveUp | Drop | Excuse


class State(Enum):
    """How far a visit has come."""

    OUTSIDE = auto()  # its address is being checked, or will be when the visit is due
    ENTERING = auto()  # it is a group chat, and was asked to let us in
    ADMITTED = auto()  # it has let us in; the people behind it are being checked
    INSIDE = auto()  # settled: what is said there counts


class _Visit:
    """One room. Occupants are kept by hashes of their nicks, because names may be long."""

    def __init__(self, kept: Room, due_s: float, *, ours: bool) -> None:
        """``kept.by`` is who invited us, "" unless vouched for; ``ours``: the room has let us in at some time."""
        self.nick, self.password, self.by = kept.nick, kept.password, kept.by
        self.ours = ours
        self.attempt = 0
        self.wait_s = _RETRY_S[0]
        self.told: FIFOCache[str, str] = FIFOCache(MAX_MESSAGE_IDS)
        """The room's id of each of our latest messages → our own id."""
        self.reset(due_s)

    def reset(self, due_s: float) -> None:
        """Note that we are not in the room; the next attempt is at ``due_s``."""
        self.state = State.OUTSIDE
        self.due_s = due_s
        self.occupants: dict[str, tuple[str, UserId]] = {}  # their affiliations and own ids, "" for hidden ones

    @property
    def is_admitted(self) -> bool:
        """Whether the room has let us in, settled or not."""
        return self.state in (State.ADMITTED, State.INSIDE)

    def see(self, event: OccupantPresence) -> None:
        """Note who is there, and what they may do."""
        nick, person = user_id(event.nick), user_id(event.jid) if event.jid else ""
        self.occupants.pop(nick, None)
        manages = event.affiliation in _MANAGERS
        count = sum((affiliation in _MANAGERS) == manages for affiliation, _ in self.occupants.values())
        if event.is_present and (manages or person) and count < (MOST_MANAGERS if manages else MOST_GUESTS):
            self.occupants[nick] = (event.affiliation, person)

    def is_managed_by(self, nick: str) -> bool:
        """Whether this is an owner or admin."""
        return self.occupants.get(user_id(nick), ("", ""))[0] in _MANAGERS

    def people(self) -> frozenset[UserId]:
        """Return who invited us and which owners are there, as far as they are known."""
        owners = {person for affiliation, person in self.occupants.values() if affiliation == "owner" and person}
        return frozenset(owners | {user_id(self.by)} if self.by else owners)


class Spoken(msgspec.Struct, frozen=True):
    """What was said to us in a room; ``reply_to_id`` is our own id of a message of ours."""

    text: str
    reply_to_id: str
    can_manage: bool


class Visits:
    """All rooms of one bot."""

    def __init__(self) -> None:
        """Begin without any room."""
        self._visits: dict[str, _Visit] = {}

    def _in(self, room: str, *states: State) -> _Visit | None:
        """Return the visit to a room if it is in one of these states."""
        visit = self._visits.get(room)
        return visit if visit is not None and visit.state in states else None

    def remember(self, rooms: Mapping[str, Room], told: Mapping[str, Mapping[str, str]], now_s: float) -> None:
        """Enter these stored rooms again.

        ``told`` is how a room calls messages of ours, oldest first: JID → its id → ours.
        """
        for room, kept in rooms.items():
            visit = self._visits.setdefault(room, _Visit(kept, now_s, ours=True))
            latest = {**told.get(room, {}), **visit.told}
            visit.told.clear()
            visit.told.update(latest)

    def restart(self, now_s: float) -> list[Deed]:
        """Start over in a new session, in which we are in no room."""
        dropped: list[Deed] = [Drop(room) for room, visit in self._visits.items() if not visit.ours]
        self._visits = {room: visit for room, visit in self._visits.items() if visit.ours}
        for visit in self._visits.values():
            visit.reset(now_s)
            visit.wait_s = _RETRY_S[0]
        return dropped

    def is_visited(self, room: str) -> bool:
        """Whether this address is a room of ours, or may become one."""
        return room in self._visits

    def is_inside(self, room: str) -> bool:
        """Whether what is said in this room counts."""
        return self._in(room, State.INSIDE) is not None

    def is_manager(self, room: str, nick: str) -> bool:
        """Whether this is an owner or admin of a room of ours."""
        return self.is_inside(room) and self._visits[room].is_managed_by(nick)

    def person(self, room: str, nick: str) -> UserId:
        """Return who somebody in a room is, "" if the room hides that."""
        visit = self._visits.get(room)
        return visit.occupants.get(user_id(nick), ("", ""))[1] if visit is not None else ""

    def inside(self) -> Iterable[tuple[str, str]]:
        """Return the rooms that we are inside, with our nick there."""
        return [(room, visit.nick) for room, visit in self._visits.items() if visit.state is State.INSIDE]

    def people(self) -> dict[str, frozenset[UserId]]:
        """Return the rooms that we are inside, with who invited us and the owners who are there, if known."""
        return {room: visit.people() for room, visit in self._visits.items() if visit.state is State.INSIDE}

    def invited(self, event: RoomInvitation, now_s: float) -> list[Deed]:
        """Follow an invitation of somebody who may invite us."""
        by = event.inviter if event.is_vouched else ""
        if event.room in self._visits:
            return []
        if not self._has_space(event.room, by):
            return [Excuse(by, event.room, "too many rooms")] if by else []
        kept = Room(_nick(0), event.password, by)
        self._visits[event.room] = _Visit(kept, now_s + ANSWERS_WITHIN_S, ours=False)
        return [Check(event.room)]

    def _has_space(self, room: str, by: str) -> bool:
        """Return whether there may be one room more, here and of this inviter."""
        if len(self._visits) >= MOST_ROOMS:
            return False
        service, home = site_of_jid(room), site_of_jid(by)
        here = sum(site_of_jid(other) == service for other in self._visits)
        inviters = [visit.by for visit in self._visits.values() if by and visit.by]
        of_site = sum(site_of_jid(inviter) == home for inviter in inviters)
        return max(here, of_site) < MOST_ROOMS_OF_A_SITE and inviters.count(by) < MOST_ROOMS_OF_AN_INVITER

    def checked(self, room: str, *, is_group_chat: bool | None) -> list[Deed]:
        """Enter an address that says that it is a group chat; None: it has not said so clearly."""
        visit = self._in(room, State.OUTSIDE)
        if visit is None or (visit.ours and is_group_chat is None):
            return []
        if not is_group_chat:
            return self._ended(room, "no group chat")
        visit.state = State.ENTERING
        return [Enter(room, visit.nick, visit.password)]

    def due(self, now_s: float) -> list[Deed]:
        """Return what is to be tried now; invitations to addresses that do not answer are dropped."""
        deeds: list[Deed] = []
        for room, visit in list(self._visits.items()):
            if visit.is_admitted or visit.due_s > now_s:
                continue
            if visit.ours:
                visit.reset(now_s + visit.wait_s)
                visit.wait_s = min(visit.wait_s * 2, _RETRY_S[1])
                deeds.append(Check(room))
            else:
                deeds += self.left(room) if visit.state is State.ENTERING else self._ended(room)
        return deeds

    def lost(self, room: str, now_s: float) -> None:
        """Note that we are not in a room any more."""
        visit = self._in(room, State.ADMITTED, State.INSIDE)
        if visit is not None:
            visit.reset(now_s)
            visit.wait_s = _RETRY_S[0]

    def moved(self, event: OccupantPresence, now_s: float) -> list[Deed]:
        """Note that somebody came, changed, or went; unless we have asked to enter, that means nothing."""
        visit = self._in(event.room, State.ENTERING, State.ADMITTED, State.INSIDE)
        if visit is None:
            return []
        if event.is_present and not visit.is_admitted:
            is_own = MYSELF in event.statuses and (event.nick == visit.nick or RENAMED in event.statuses)
        else:
            is_own = event.nick == visit.nick or MYSELF in event.statuses
        if is_own:
            return self._we_moved(event, visit, now_s)
        visit.see(event)
        return []

    def _we_moved(self, event: OccupantPresence, visit: _Visit, now_s: float) -> list[Deed]:
        if not event.is_present:
            if event.is_destroyed or event.statuses & TURNED_OUT:
                return self._ended(event.room)
            self.lost(event.room, now_s)
            return []
        if CREATED in event.statuses:  # there was no such room: entering it made it
            visit.reset(now_s + visit.wait_s)
            return [Leave(event.room, event.nick), *([] if visit.ours else self._ended(event.room))]
        visit.nick = event.nick
        if visit.is_admitted:
            return []
        is_new, visit.ours, visit.state = not visit.ours, True, State.ADMITTED
        visit.wait_s = _RETRY_S[0]
        return [Settle(event.room, Room(visit.nick, visit.password, visit.by), visit.people(), is_new)]

    def settled(self, room: str) -> bool:
        """Be inside from now on, as nobody suspended is behind the room; return whether we are still there."""
        visit = self._in(room, State.ADMITTED, State.INSIDE)
        if visit is not None:
            visit.state = State.INSIDE
        return visit is not None

    def suspended(self, room: str, now_s: float, *, is_new: bool) -> list[Deed]:
        """Leave a room behind which somebody suspended is: for good if it is new, else look again later."""
        visit = self._in(room, State.ADMITTED, State.INSIDE)
        if visit is None:
            return []
        visit.reset(now_s + _RETRY_S[1])
        visit.ours = not is_new
        return [Leave(room, visit.nick), *(self._ended(room) if is_new else [])]

    def refused(self, event: RoomJoinRefused) -> list[Deed]:
        """Try another nick, or later, or not again, as a room does not let us in."""
        visit = self._in(event.room, State.ENTERING)
        if visit is None:
            return []
        if event.condition == "conflict" and visit.attempt + 1 < MOST_NICKS:
            visit.attempt += 1
            visit.nick = _nick(visit.attempt)
            return [Enter(event.room, visit.nick, visit.password)]
        return [] if visit.ours and event.condition not in _FINAL else self._ended(event.room, "refused")

    def left(self, room: str) -> list[Deed]:
        """Leave a room for good."""
        visit = self._visits.get(room)
        return [Leave(room, visit.nick), *self._ended(room)] if visit is not None else []

    def handed_over(self, room: str) -> list[Deed]:
        """Leave a room to another bot of ours."""
        visit = self._visits.pop(room, None)
        return [Leave(room, visit.nick)] if visit is not None and visit.state is not State.OUTSIDE else []

    def _ended(self, room: str, reason: Literal["", "refused", "no group chat"] = "") -> list[Deed]:
        """End a visit; for this reason, who invited us to a new room is told."""
        visit = self._visits.pop(room)
        if visit.ours:
            return [GiveUp(room)]
        return [Drop(room), *([Excuse(visit.by, room, reason)] if reason and visit.by else [])]

    def is_echo(self, event: RoomMessageReceived) -> bool:
        """Whether this is a message of ours, as all in the room get it; the room's id of it is kept."""
        visit = self._in(event.room, State.INSIDE)
        if visit is None or event.nick != visit.nick:
            return False
        if event.room_id:
            visit.told[event.room_id] = event.id
        return True

    def to_us(self, event: RoomMessageReceived) -> Spoken | None:
        """Return what was said to us: by our name, or under a message of ours; None if it was not."""
        visit = self._in(event.room, State.INSIDE)
        if visit is None:
            return None
        ours = visit.told.get(event.reply_to_id, "")
        may_change = visit.is_managed_by(event.nick)
        if event.is_reaction:
            return Spoken(event.text, ours, may_change) if ours and may_change else None
        named = _addressed(event.text, visit.nick)
        if named is None and not (ours and event.text):
            return None
        return Spoken(event.text if named is None else named, ours, may_change)


def can_vouch(room: str, jid: str) -> bool:
    """Say whether a room is on a service of a person's own server, if it is a service: its domain is below theirs.

    Not on their very domain: it has accounts. Nor below a domain under which anybody can have one.
    """
    service, home = room.rpartition("@")[2], jid.rpartition("@")[2]
    return service.endswith(f".{home}") and ("." not in home or site_of(service) == site_of(home))


def _addressed(text: str, nick: str) -> str | None:
    """Return what was said to ``nick``, without their name; None if it was said to nobody, or somebody else."""
    rest = text.strip().removeprefix("@")
    if not rest.lower().startswith(nick.lower()):
        return None
    after = rest[len(nick) :]
    return None if after and after[0] not in AFTER_NICK else after.lstrip(AFTER_NICK)


def _nick(attempt: int) -> str:
    """Return our name in a room, the next one if others have the first ones."""
    return BOT_NAME if attempt == 0 else f"{BOT_NAME}-{attempt + 1}"
