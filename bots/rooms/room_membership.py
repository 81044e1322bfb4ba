"""The state machine of the bot's membership in rooms: decides when the bot joins, rejoins and leaves.

The state machine turns events into actions. It performs no I/O and reads no clock; it gets times as arguments, in
seconds of the monotonic clock.

A room becomes known through an invitation, or is loaded from the store. Joining takes several steps:

1. The bot queries whether the address is a group chat (service discovery, ADR 46).
2. The bot requests to join, and its own presence (status 110) shows that it is admitted. From then on, the room is
   *established*. Without this proof, an invitation could make the bot treat a user's address as a room.
3. The bot checks that none of the users responsible for the room is suspended: the inviter and the owners. Then the bot
   is *inside*, and handles messages in the room.

After a ban, a kick, or the destruction of the room, the bot does not join it again. If the bot loses the room for any
other reason, it tries to join again, with increasing delays between attempts.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, Literal

import msgspec
from cachetools import FIFOCache

from bots.rooms.command_recognition import recognize_command
from bots.rooms.invitation_policy import has_space
from bots.xmpp.bot_profile import BOT_NAME
from bots.xmpp.events import MessageReceived, OccupantPresence, RoomInvitation, RoomJoinRefused
from service.model import UserId
from service.store.client.keys import user_id
from service.store.people.bot_rooms import MAX_MESSAGE_IDS, Room

STATUS_CREATED: Final = "201"
STATUS_SELF: Final = "110"
STATUS_NICK_CHANGED: Final = "210"
"""Status code in a presence: the room assigned the bot a nick other than the requested one."""
REMOVAL_STATUSES: Final = frozenset(("301", "307", "321", "322"))
"""Status codes in a presence: the bot was banned or kicked, lost its membership, or the room became members-only."""

MAX_MANAGERS: Final = 100
"""Maximum number of owners and admins that are recorded for one room."""
MAX_GUESTS: Final = 200
"""Maximum number of other occupants with a known JID that are recorded for one room."""
MAX_NICKS: Final = 9
INVITATION_TIMEOUT_S: Final = 60.0
"""Time after which an invitation is dropped if the address of the room does not respond."""
_MIN_RETRY_S, _MAX_RETRY_S = 15.0, 3_600.0
_FINAL_CONDITIONS: Final = frozenset(("forbidden", "registration-required", "gone", "item-not-found", "not-allowed"))
"""Error conditions after which the bot gives up a room that has admitted it before (an *established* room). A room that
has never admitted the bot is given up after any refusal."""
_MANAGER_AFFILIATIONS: Final = ("owner", "admin")


class CheckAddress(msgspec.Struct, frozen=True):
    """Action: query whether the address is a group chat; then call :meth:`RoomMemberships.on_address_checked`."""

    room: str


class JoinRoom(msgspec.Struct, frozen=True):
    """Action: send the presence that joins the room."""

    room: str
    nick: str
    password: str


class LeaveRoom(msgspec.Struct, frozen=True):
    """Action: send the presence that leaves the room."""

    room: str
    nick: str


class ConfirmRoom(msgspec.Struct, frozen=True):
    """Action: check the users who are responsible for a room that has admitted the bot.

    If none of them is suspended, store the room and call :meth:`RoomMemberships.confirm`; otherwise call
    :meth:`RoomMemberships.on_suspended`.

    - ``responsible_users``: the inviter, and the owners who are present. Users whose JIDs are unknown are left out.
    - ``is_new``: whether the room has admitted the bot for the first time.
    """

    room: str
    record: Room
    responsible_users: frozenset[UserId]
    is_new: bool


class DeleteRoom(msgspec.Struct, frozen=True):
    """Action: delete an established room and its subscriptions, because the bot has left it for good."""

    room: str


class ReleaseAddress(msgspec.Struct, frozen=True):
    """Action: treat the address as a user's address again, because the bot has not been admitted to a room there."""

    room: str


class NotifyInviter(msgspec.Struct, frozen=True):
    """Action: tell the inviter ``to`` why the bot does not join ``room``.

    This happens only if the inviter's own server has confirmed who the inviter is.
    """

    to: str
    room: str
    reason: Literal["refused", "no group chat", "too many rooms"]


RoomAction = CheckAddress | JoinRoom | LeaveRoom | ConfirmRoom | DeleteRoom | ReleaseAddress | NotifyInviter


class RoomPhase(Enum):
    """How far the bot has got in joining a room."""

    OUTSIDE = auto()
    """The address is being checked, or will be checked in the next attempt to join."""
    JOINING = auto()
    """The address is that of a group chat, and the bot has requested to join it."""
    ADMITTED = auto()
    """The room has admitted the bot; the users responsible for the room are being checked."""
    INSIDE = auto()
    """The room is confirmed, and the bot handles messages in it."""


class _RoomMembership:
    """The state of one room. Occupants are stored under hashes of their nicks, because nicks can be long."""

    def __init__(self, record: Room, next_attempt_s: float, *, is_established: bool) -> None:
        """Create the state of a room that the bot is not in yet.

        - ``record``: the bot's nick, the room's password, and the inviter. The inviter is "" if the inviter's server
          has not confirmed who the inviter is.
        - ``next_attempt_s``: when the next attempt to join is due (seconds of the monotonic clock).
        - ``is_established``: whether the room has admitted the bot before.
        """
        self.nick, self.password, self.inviter = record.nick, record.password, record.by
        self.is_established = is_established
        self.nick_attempt = 0
        self.retry_s = _MIN_RETRY_S
        self.message_ids: FIFOCache[str, str] = FIFOCache(MAX_MESSAGE_IDS)
        """For the bot's latest messages, maps the id that the room assigned to a message to the id that the bot
        assigned to it."""
        self.reset(next_attempt_s)

    def reset(self, next_attempt_s: float) -> None:
        """Record that the bot is not in the room; the next attempt to join is due at ``next_attempt_s``."""
        self.phase = RoomPhase.OUTSIDE
        self.next_attempt_s = next_attempt_s
        self.occupants: dict[str, tuple[str, UserId]] = {}
        """Maps the hash of each nick to (affiliation, user id); the user id is "" if the room hides the JID."""

    @property
    def is_admitted(self) -> bool:
        """Whether the room has admitted the bot, even if the responsible users have not been checked yet."""
        return self.phase in (RoomPhase.ADMITTED, RoomPhase.INSIDE)

    def update_occupant(self, event: OccupantPresence) -> None:
        """Record an occupant who has joined or changed; remove an occupant who has left.

        Only owners, admins and occupants with a known JID are recorded, up to a maximum number.
        """
        nick, occupant_user_id = user_id(event.nick), user_id(event.jid) if event.jid else ""
        self.occupants.pop(nick, None)
        is_manager = event.affiliation in _MANAGER_AFFILIATIONS
        count = sum((affiliation in _MANAGER_AFFILIATIONS) == is_manager for affiliation, _ in self.occupants.values())
        limit = MAX_MANAGERS if is_manager else MAX_GUESTS
        if event.is_present and (is_manager or occupant_user_id) and count < limit:
            self.occupants[nick] = (event.affiliation, occupant_user_id)

    def with_sender(self, message: MessageReceived) -> MessageReceived:
        """Return a copy of ``message`` with ``can_manage`` and ``occupant_user_id`` set for its sender."""
        affiliation, occupant_user_id = self.occupants.get(user_id(message.resource), ("", ""))
        can_manage = affiliation in _MANAGER_AFFILIATIONS
        return msgspec.structs.replace(message, can_manage=can_manage, occupant_user_id=occupant_user_id)

    def responsible_users(self) -> frozenset[UserId]:
        """Return the ids of the users responsible for the room: the inviter, and the owners who are present.

        Users whose JIDs are unknown are left out.
        """
        owners = {occupant for affiliation, occupant in self.occupants.values() if affiliation == "owner" and occupant}
        return frozenset(owners | {user_id(self.inviter)} if self.inviter else owners)


class RoomMemberships:
    """The states of all rooms of one bot.

    The methods that handle events return the actions that the caller must execute, in order. Rooms are identified by
    their bare JIDs. Times are in seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        """Create an instance that does not know any rooms."""
        self._rooms: dict[str, _RoomMembership] = {}

    def _in_phase(self, room: str, *phases: RoomPhase) -> _RoomMembership | None:
        """Return the state of a room if it is in one of ``phases``, else None."""
        state = self._rooms.get(room)
        return state if state is not None and state.phase in phases else None

    # Queries.

    def is_known(self, room: str) -> bool:
        """Return whether the bot is in this room, is joining it, or is handling an invitation to it."""
        return room in self._rooms

    def joined_rooms(self) -> Iterable[tuple[str, str]]:
        """Return a pair (room, the bot's nick) for each room that the bot is inside."""
        return [(room, state.nick) for room, state in self._rooms.items() if state.phase is RoomPhase.INSIDE]

    def responsible_users(self) -> dict[str, frozenset[UserId]]:
        """Map each room that the bot is inside to the ids of its inviter and of the owners who are present.

        Users whose JIDs are unknown are left out.
        """
        inside = RoomPhase.INSIDE
        return {room: state.responsible_users() for room, state in self._rooms.items() if state.phase is inside}

    def addressed_command(self, message: MessageReceived) -> MessageReceived | None:
        """Return the command in a message in a room, or None if the message is not a command to the bot.

        A command begins with the bot's nick, or replies or reacts to a message of the bot. For a reply or reaction,
        ``reply_to_id`` of the result is the id that the bot itself assigned to that message.
        """
        state = self._in_phase(message.jid, RoomPhase.INSIDE)
        if state is None:
            return None
        own_id = state.message_ids.get(message.reply_to_id, "")
        return recognize_command(state.with_sender(message), state.nick, own_id)

    def private_command(self, message: MessageReceived) -> MessageReceived | None:
        """Return the command in a private message from an occupant.

        Return None if the bot is not inside the room, if the message does not come from an occupant, or if the message
        was delayed.
        """
        state = self._in_phase(message.jid, RoomPhase.INSIDE)
        if state is None or not message.resource or message.sent_s:
            return None
        return msgspec.structs.replace(state.with_sender(message), occupant_id=message.resource)

    # Invitations and joining.

    def load(self, rooms: Mapping[str, Room], message_ids: Mapping[str, Mapping[str, str]], now_s: float) -> None:
        """Add stored rooms, so that the bot joins them again. Rooms that are already known keep their state.

        ``message_ids`` identifies the latest messages that the bot has sent to each room. For each room, it maps the
        ids assigned by the room to the ids assigned by the bot, oldest message first.
        """
        for room, record in rooms.items():
            state = self._rooms.setdefault(room, _RoomMembership(record, now_s, is_established=True))
            latest = {**message_ids.get(room, {}), **state.message_ids}
            state.message_ids.clear()
            state.message_ids.update(latest)

    def on_session_started(self, now_s: float) -> list[RoomAction]:
        """Schedule attempts to join all established rooms again in a new session; drop all other rooms.

        A room is established if it has admitted the bot; the others are invitations in progress. The returned actions
        release the addresses of the dropped rooms.
        """
        dropped: list[RoomAction] = [
            ReleaseAddress(room) for room, state in self._rooms.items() if not state.is_established
        ]
        self._rooms = {room: state for room, state in self._rooms.items() if state.is_established}
        for state in self._rooms.values():
            state.reset(now_s)
            state.retry_s = _MIN_RETRY_S
        return dropped

    def on_invitation(self, event: RoomInvitation, now_s: float) -> list[RoomAction]:
        """Process an invitation from a user who may use the bot; decline it if the bot already has too many rooms."""
        inviter = event.inviter if event.is_vouched else ""
        if event.room in self._rooms:
            return []
        inviters = {room: state.inviter for room, state in self._rooms.items()}
        if not has_space(event.room, inviter, inviters):
            return [NotifyInviter(inviter, event.room, "too many rooms")] if inviter else []
        record = Room(_nick(0), event.password, inviter)
        self._rooms[event.room] = _RoomMembership(record, now_s + INVITATION_TIMEOUT_S, is_established=False)
        return [CheckAddress(event.room)]

    def on_address_checked(self, room: str, *, is_group_chat: bool | None) -> list[RoomAction]:
        """Join the room if its address is a group chat; abandon the room if not.

        ``is_group_chat`` is None if the response was unclear or missing. In this case, an established room is tried
        again later, and any other room is abandoned.
        """
        state = self._in_phase(room, RoomPhase.OUTSIDE)
        if state is None or (state.is_established and is_group_chat is None):
            return []
        if not is_group_chat:
            return self._end(room, "no group chat")
        state.phase = RoomPhase.JOINING
        return [JoinRoom(room, state.nick, state.password)]

    def due_actions(self, now_s: float) -> list[RoomAction]:
        """Return the actions that are due at ``now_s``: attempts to join rooms, and the end of old invitations.

        The bot tries again to join each room that has admitted it before. An invitation is dropped if the room has
        not admitted the bot in time.
        """
        actions: list[RoomAction] = []
        for room, state in list(self._rooms.items()):
            if state.is_admitted or state.next_attempt_s > now_s:
                continue
            if state.is_established:
                state.reset(now_s + state.retry_s)
                state.retry_s = min(state.retry_s * 2, _MAX_RETRY_S)
                actions.append(CheckAddress(room))
            else:
                actions += self.leave(room) if state.phase is RoomPhase.JOINING else self._end(room)
        return actions

    def on_join_refused(self, event: RoomJoinRefused) -> list[RoomAction]:
        """Try another nick, try again later, or abandon the room, depending on why the room has refused the bot."""
        state = self._in_phase(event.room, RoomPhase.JOINING)
        if state is None:
            return []
        if event.condition == "conflict" and state.nick_attempt + 1 < MAX_NICKS:
            state.nick_attempt += 1
            state.nick = _nick(state.nick_attempt)
            return [JoinRoom(event.room, state.nick, state.password)]
        is_temporary = state.is_established and event.condition not in _FINAL_CONDITIONS
        return [] if is_temporary else self._end(event.room, "refused")

    def confirm(self, room: str) -> bool:
        """Record that the bot is now inside a room, because no user responsible for it is suspended.

        Return False if the bot has left the room in the meantime, otherwise True.
        """
        state = self._in_phase(room, RoomPhase.ADMITTED, RoomPhase.INSIDE)
        if state is not None:
            state.phase = RoomPhase.INSIDE
        return state is not None

    # Inside and leaving.

    def on_occupant_presence(self, event: OccupantPresence, now_s: float) -> list[RoomAction]:
        """Update the state of an occupant or of the bot itself; ignore rooms that the bot has not requested to join."""
        state = self._in_phase(event.room, RoomPhase.JOINING, RoomPhase.ADMITTED, RoomPhase.INSIDE)
        if state is None:
            return []
        if event.is_present and not state.is_admitted:
            has_own_nick = event.nick == state.nick or STATUS_NICK_CHANGED in event.statuses
            is_own = STATUS_SELF in event.statuses and has_own_nick
        else:
            is_own = event.nick == state.nick or STATUS_SELF in event.statuses
        if is_own:
            return self._on_own_presence(event, state, now_s)
        state.update_occupant(event)
        return []

    def _on_own_presence(self, event: OccupantPresence, state: _RoomMembership, now_s: float) -> list[RoomAction]:
        if not event.is_present:
            if event.is_destroyed or event.statuses & REMOVAL_STATUSES:
                return self._end(event.room)
            self.on_room_lost(event.room, now_s)
            return []
        if STATUS_CREATED in event.statuses:  # the room did not exist: joining created it
            state.reset(now_s + state.retry_s)
            return [LeaveRoom(event.room, event.nick), *([] if state.is_established else self._end(event.room))]
        state.nick = event.nick
        if state.is_admitted:
            return []
        is_new, state.is_established, state.phase = not state.is_established, True, RoomPhase.ADMITTED
        state.retry_s = _MIN_RETRY_S
        record = Room(state.nick, state.password, state.inviter)
        return [ConfirmRoom(event.room, record, state.responsible_users(), is_new)]

    def record_echo(self, message: MessageReceived) -> bool:
        """Return whether a message is an echo, that is, a message from the bot that the room has sent back.

        If it is, also record the id that the room assigned to the message.
        """
        state = self._in_phase(message.jid, RoomPhase.INSIDE)
        if state is None or message.resource != state.nick:
            return False
        if message.room_id:
            state.message_ids[message.room_id] = message.id
        return True

    def on_room_lost(self, room: str, now_s: float) -> None:
        """Record that the bot is no longer in a room, so that it joins the room again at once."""
        state = self._in_phase(room, RoomPhase.ADMITTED, RoomPhase.INSIDE)
        if state is not None:
            state.reset(now_s)
            state.retry_s = _MIN_RETRY_S

    def on_suspended(self, room: str, now_s: float, *, is_new: bool) -> list[RoomAction]:
        """Leave a room because its inviter or an owner is suspended.

        ``is_new`` states whether the room had just admitted the bot for the first time. If so, the bot does not join
        the room again. Otherwise, the bot tries to join it again after ``_MAX_RETRY_S`` seconds.
        """
        state = self._in_phase(room, RoomPhase.ADMITTED, RoomPhase.INSIDE)
        if state is None:
            return []
        state.reset(now_s + _MAX_RETRY_S)
        state.is_established = not is_new
        return [LeaveRoom(room, state.nick), *(self._end(room) if is_new else [])]

    def leave(self, room: str) -> list[RoomAction]:
        """Leave a room for good."""
        state = self._rooms.get(room)
        return [LeaveRoom(room, state.nick), *self._end(room)] if state is not None else []

    def hand_over(self, room: str) -> list[RoomAction]:
        """Leave a room because another bot process serves it from now on."""
        state = self._rooms.pop(room, None)
        return [LeaveRoom(room, state.nick)] if state is not None and state.phase is not RoomPhase.OUTSIDE else []

    def _end(self, room: str, reason: Literal["", "refused", "no group chat"] = "") -> list[RoomAction]:
        """Remove a room for good, and return the actions that this requires.

        A room that has admitted the bot before is deleted with its subscriptions. Otherwise, only the invitation
        ends. If ``reason`` is not "", the inviter is then notified of the reason.
        """
        state = self._rooms.pop(room)
        if state.is_established:
            return [DeleteRoom(room)]
        return [
            ReleaseAddress(room),
            *([NotifyInviter(state.inviter, room, reason)] if reason and state.inviter else []),
        ]


def _nick(attempt: int) -> str:
    """Return the nick that the bot uses in attempt number ``attempt`` (from 0) to join a room.

    Each attempt uses a different nick, because the previous one may belong to another occupant.
    """
    return BOT_NAME if attempt == 0 else f"{BOT_NAME}-{attempt + 1}"
