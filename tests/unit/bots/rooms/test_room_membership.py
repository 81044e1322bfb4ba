"""The state machine of rooms: invitations, joins, confirmation, loss and removal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.rooms.invitation_policy import MAX_ROOMS, MAX_ROOMS_PER_INVITER, MAX_ROOMS_PER_SITE
from bots.rooms.room_membership import (
    INVITATION_TIMEOUT_S,
    MAX_GUESTS,
    MAX_MANAGERS,
    REMOVAL_STATUSES,
    STATUS_CREATED,
    STATUS_NICK_CHANGED,
    CheckAddress,
    ConfirmRoom,
    DeleteRoom,
    JoinRoom,
    LeaveRoom,
    NotifyInviter,
    ReleaseAddress,
    RoomMemberships,
)
from bots.xmpp.events import MessageReceived, OccupantPresence, RoomInvitation, RoomJoinRefused
from service.store.client.keys import user_id
from service.store.people.bot_rooms import Room

ROOM = "lounge@rooms.example"
NOBODY = frozenset[str]()


def joined(room: str = ROOM, nick: str = "Coronet", *statuses: str) -> OccupantPresence:
    """The bot's own presence in a room."""
    return OccupantPresence(
        room, nick, "none", is_present=True, statuses=frozenset(("110", *statuses)), is_destroyed=False
    )


def left(*statuses: str, destroyed: bool = False) -> OccupantPresence:
    """The bot's own presence as it leaves the room."""
    return OccupantPresence(
        ROOM, "Coronet", "none", is_present=False, statuses=frozenset(("110", *statuses)), is_destroyed=destroyed
    )


def occupant(nick: str, affiliation: str, *, is_present: bool = True, jid: str = "") -> OccupantPresence:
    """Presence of another occupant."""
    return OccupantPresence(ROOM, nick, affiliation, is_present, NOBODY, is_destroyed=False, jid=jid)


def invitation(
    room: str = ROOM, by: str = "alice@example", password: str = "", *, is_vouched: bool = True
) -> RoomInvitation:
    """An invitation of a user who may use the bot."""
    return RoomInvitation(room, by, password, is_vouched=is_vouched)


def confirmation(*users: str, nick: str = "Coronet") -> ConfirmRoom:
    """The action after the room has admitted the bot, which alice invited; ``users`` are responsible."""
    return ConfirmRoom(ROOM, Room(nick, "secret", "alice@example"), frozenset(map(user_id, users)), is_new=True)


def room_message(
    nick: str, text: str, *, reply_to_id: str = "", room_id: str = "", is_reaction: bool = False
) -> MessageReceived:
    """A message of an occupant."""
    return MessageReceived(
        ROOM, f"{ROOM}/{nick}", "id", text, "", wants_receipt=False, reply_to_id=reply_to_id, is_reaction=is_reaction,
        is_groupchat=True, room_id=room_id,
    )  # fmt: skip


def private_message(states: RoomMemberships, nick: str) -> MessageReceived | None:
    """Return a private message of an occupant as the bot handles it."""
    return states.private_command(MessageReceived(ROOM, f"{ROOM}/{nick}", "id", "list", "", wants_receipt=False))


def is_manager(states: RoomMemberships, nick: str) -> bool:
    """Return whether the bot lets an occupant change the subscriptions of the room."""
    message = private_message(states, nick)
    return message is not None and message.can_manage


def occupant_user_id(states: RoomMemberships, nick: str) -> str:
    """Return the user id of an occupant, "" if the bot does not know it."""
    message = private_message(states, nick)
    return message.occupant_user_id if message is not None else ""


def joining() -> RoomMemberships:
    """Return the states after an invitation and the request to join."""
    states = RoomMemberships()
    states.on_invitation(invitation(password="secret"), 0.0)
    states.on_address_checked(ROOM, is_group_chat=True)
    return states


def inside() -> RoomMemberships:
    """Return the states with a confirmed room."""
    states = joining()
    states.on_occupant_presence(joined(), 1.0)
    states.confirm(ROOM)
    return states


def is_established(states: RoomMemberships, room: str) -> bool:
    """Return whether the room has admitted the bot before and has not removed it since."""
    return room in states._rooms and states._rooms[room].is_established


def test_a_room_is_established_once_it_admits_the_bot() -> None:
    states = RoomMemberships()
    assert states.on_invitation(invitation(password="secret"), 0.0) == [CheckAddress(ROOM)]
    assert states.on_address_checked(ROOM, is_group_chat=True) == [JoinRoom(ROOM, "Coronet", "secret")]
    assert not is_established(states, ROOM), "an invitation alone must not turn an address into a room"
    assert states.on_occupant_presence(joined(), 1.0) == [confirmation("alice@example")]
    assert is_established(states, ROOM)
    assert states.confirm(ROOM)
    assert states.on_invitation(invitation(by="bob@example"), 2.0) == []


@pytest.mark.parametrize("answer", [False, None])
def test_an_address_that_is_no_group_chat_is_not_joined(*, answer: bool | None) -> None:
    states = RoomMemberships()
    states.on_invitation(invitation(), 0.0)
    assert states.on_occupant_presence(joined(), 0.5) == [], "the bot has not requested to join"
    assert states.on_address_checked(ROOM, is_group_chat=answer) == [
        ReleaseAddress(ROOM),
        NotifyInviter("alice@example", ROOM, "no group chat"),
    ]
    assert states.on_occupant_presence(joined(), 1.0) == []
    states.on_invitation(invitation(is_vouched=False), 2.0)
    assert states.on_address_checked(ROOM, is_group_chat=answer) == [ReleaseAddress(ROOM)], "the inviter may be forged"


def test_an_established_room_is_checked_before_each_join() -> None:
    states = RoomMemberships()
    states.load({ROOM: Room("Coronet"), "bob@example": Room("Coronet")}, {}, 0.0)
    assert states.due_actions(0.0) == [CheckAddress(ROOM), CheckAddress("bob@example")]
    assert states.on_address_checked(ROOM, is_group_chat=None) == [], "the server may be unavailable for now"
    assert states.on_address_checked("bob@example", is_group_chat=False) == [DeleteRoom("bob@example")]
    assert states.due_actions(15.0) == [CheckAddress(ROOM)]
    assert states.on_address_checked(ROOM, is_group_chat=True) == [JoinRoom(ROOM, "Coronet", "")]
    assert states.on_address_checked(ROOM, is_group_chat=True) == []


def test_messages_are_processed_only_in_a_confirmed_room() -> None:
    states = joining()
    states.on_occupant_presence(occupant("alice", "owner"), 1.0)
    assert not is_manager(states, "alice")
    assert states.addressed_command(room_message("alice", "Coronet: list")) is None
    states.on_occupant_presence(joined(), 1.0)
    assert states.addressed_command(room_message("alice", "Coronet: list")) is None
    assert not states.record_echo(room_message("Coronet", "news", room_id="r1"))
    states.confirm(ROOM)
    assert is_manager(states, "alice")
    assert states.addressed_command(room_message("alice", "Coronet: list")) is not None
    states.on_room_lost(ROOM, 2.0)
    assert not is_manager(states, "alice")


def test_only_the_bots_own_presence_admits_it() -> None:
    states = joining()
    other = OccupantPresence(ROOM, "Coronet", "none", is_present=True, statuses=NOBODY, is_destroyed=False)
    assert states.on_occupant_presence(other, 1.0) == [], "another occupant has the requested nick"
    assert states.on_occupant_presence(joined(nick="eve"), 1.0) == []
    assert states.on_occupant_presence(joined(ROOM, "Coronet (bot)", STATUS_NICK_CHANGED), 1.0) == [
        confirmation("alice@example", nick="Coronet (bot)")
    ]


def test_responsible_users_are_the_inviter_and_owners_with_known_jids() -> None:
    states = joining()
    states.on_occupant_presence(occupant("bob", "owner", jid="bob@example"), 1.0)
    states.on_occupant_presence(occupant("carol", "admin", jid="carol@example"), 1.0)
    states.on_occupant_presence(occupant("dan", "owner"), 1.0)
    states.on_occupant_presence(occupant("eve", "none", jid="eve@example"), 1.0)
    assert states.on_occupant_presence(joined(), 1.0) == [confirmation("alice@example", "bob@example")]
    states.confirm(ROOM)
    user_ids = [occupant_user_id(states, nick) for nick in ("bob", "carol", "dan", "eve", "nobody")]
    assert user_ids == [user_id("bob@example"), user_id("carol@example"), "", user_id("eve@example"), ""]


def test_a_room_with_a_suspended_responsible_user_is_left() -> None:
    states = joining()
    states.on_occupant_presence(joined(), 1.0)
    assert states.on_suspended(ROOM, 1.0, is_new=True) == [LeaveRoom(ROOM, "Coronet"), ReleaseAddress(ROOM)]
    states = inside()
    assert states.on_suspended(ROOM, 2.0, is_new=False) == [LeaveRoom(ROOM, "Coronet")], "the suspension may be lifted"
    assert is_established(states, ROOM)
    assert states.addressed_command(room_message("alice", "Coronet: list")) is None
    assert states.due_actions(2.0 + 3_600.0) == [CheckAddress(ROOM)]


def test_tracked_occupants_are_limited() -> None:
    states = inside()
    for number in range(MAX_MANAGERS + MAX_GUESTS + 10):
        states.on_occupant_presence(occupant(f"admin {number}", "admin"), 1.0)
        states.on_occupant_presence(occupant(f"guest {number}", "none", jid=f"{number}@example"), 1.0)
    assert is_manager(states, f"admin {MAX_MANAGERS - 1}")
    assert not is_manager(states, f"admin {MAX_MANAGERS}")
    assert occupant_user_id(states, f"guest {MAX_GUESTS - 1}")
    assert not occupant_user_id(states, f"guest {MAX_GUESTS}")


def test_a_reply_to_a_message_sent_before_a_restart_is_recognised() -> None:
    states = RoomMemberships()
    states.load({ROOM: Room("Coronet")}, {ROOM: {"theirs": "ours", "other": "another"}}, 0.0)
    states.on_address_checked(ROOM, is_group_chat=True)
    states.on_occupant_presence(joined(), 1.0)
    states.confirm(ROOM)
    states.record_echo(room_message("Coronet", "news", room_id="fresh"))
    addressed = states.addressed_command(room_message("bob", "pause", reply_to_id="theirs"))
    assert addressed is not None
    assert addressed.reply_to_id == "ours"
    assert states.addressed_command(room_message("bob", "pause", reply_to_id="fresh")) is not None
    assert states.addressed_command(room_message("bob", "pause", reply_to_id="unknown")) is None


def test_a_room_that_the_join_created_is_left() -> None:
    states = joining()
    assert states.on_occupant_presence(joined(ROOM, "Coronet", STATUS_CREATED), 1.0) == [
        LeaveRoom(ROOM, "Coronet"),
        ReleaseAddress(ROOM),
    ]
    assert not is_established(states, ROOM)
    states = RoomMemberships()
    states.load({ROOM: Room("Coronet")}, {}, 0.0)
    states.on_address_checked(ROOM, is_group_chat=True)
    assert states.on_occupant_presence(joined(ROOM, "Coronet", STATUS_CREATED), 1.0) == [LeaveRoom(ROOM, "Coronet")]
    assert is_established(states, ROOM), "its owners may create it again"


def test_another_nick_is_tried_after_a_conflict() -> None:
    states = joining()
    assert states.on_join_refused(RoomJoinRefused(ROOM, "conflict")) == [JoinRoom(ROOM, "Coronet-2", "secret")]
    assert states.on_occupant_presence(joined(nick="Coronet-2"), 1.0) == [
        confirmation("alice@example", nick="Coronet-2")
    ]


def test_the_inviter_is_notified_of_a_refusal() -> None:
    refused = [ReleaseAddress(ROOM), NotifyInviter("alice@example", ROOM, "refused")]
    assert joining().on_join_refused(RoomJoinRefused(ROOM, "registration-required")) == refused


def test_a_room_that_removes_the_bot_is_deleted() -> None:
    for event in (*(left(status) for status in REMOVAL_STATUSES), left(destroyed=True)):
        states = inside()
        assert states.on_occupant_presence(event, 9.0) == [DeleteRoom(ROOM)]
        assert states.due_actions(1e9) == []


def test_joins_after_a_shutdown_are_retried_with_growing_delays() -> None:
    states = inside()
    assert states.on_occupant_presence(left("332"), 10.0) == []
    attempts = [now_s for now_s in range(10, 200) if states.due_actions(float(now_s))]
    assert attempts[:4] == [10, 25, 55, 115]
    states.on_address_checked(ROOM, is_group_chat=True)
    assert states.on_join_refused(RoomJoinRefused(ROOM, "remote-server-timeout")) == [], "a temporary condition"
    assert states.on_join_refused(RoomJoinRefused(ROOM, "forbidden")) == [DeleteRoom(ROOM)], "a ban is final"


def test_a_new_session_joins_established_rooms_and_drops_invitations() -> None:
    states = inside()
    states.on_invitation(invitation("other@rooms.example"), 2.0)
    assert states.on_session_started(3.0) == [ReleaseAddress("other@rooms.example")]
    assert states.due_actions(3.0) == [CheckAddress(ROOM)]
    assert not states.confirm(ROOM), "the bot was admitted in the previous session"


def test_an_invitation_without_a_response_expires() -> None:
    states = joining()
    assert states.due_actions(INVITATION_TIMEOUT_S + 1) == [LeaveRoom(ROOM, "Coronet"), ReleaseAddress(ROOM)]
    assert states.on_occupant_presence(joined(), INVITATION_TIMEOUT_S + 2) == []


def test_only_messages_with_the_bots_nick_are_addressed_to_it() -> None:
    states = inside()
    states.on_occupant_presence(occupant("alice", "owner"), 2.0)
    for text, expected in [
        ("Coronet: list", "list"), ("@coronet, list", "list"), ("coronet list", "list"), ("Coronet", "help"),
        ("Coronets are fine", None), ("list", None), ("I like Coronet: a lot", None),
    ]:  # fmt: skip
        addressed = states.addressed_command(room_message("alice", text))
        assert (addressed.text if addressed else None) == expected, text


def test_owners_and_admins_are_managers_while_present() -> None:
    states = inside()
    for nick, affiliation in (("alice", "owner"), ("bob", "admin"), ("eve", "member")):
        states.on_occupant_presence(occupant(nick, affiliation), 2.0)
    assert [is_manager(states, nick) for nick in ("alice", "bob", "eve")] == [True, True, False]
    states.on_occupant_presence(occupant("bob", "none"), 3.0)
    states.on_occupant_presence(occupant("alice", "owner", is_present=False), 3.0)
    assert not is_manager(states, "alice"), "another occupant may have taken the nick"
    assert not is_manager(states, "bob")


def test_a_reply_to_a_message_of_the_bot_needs_no_nick() -> None:
    states = inside()
    states.on_occupant_presence(occupant("alice", "owner"), 2.0)
    assert states.record_echo(room_message("Coronet", "news", room_id="r1"))
    addressed = states.addressed_command(room_message("alice", "stop", reply_to_id="r1"))
    assert addressed is not None
    assert (addressed.text, addressed.reply_to_id, addressed.can_manage) == ("stop", "id", True)
    assert states.addressed_command(room_message("alice", "stop", reply_to_id="r2")) is None
    assert states.addressed_command(room_message("alice", "", reply_to_id="r1")) is None, (
        "the message only quotes the bot"
    )
    assert states.addressed_command(room_message("eve", "unsubscribe", reply_to_id="r1", is_reaction=True)) is None, (
        "a reaction of a guest is no command"
    )


EVENTS = ("invitation", "checked", "joined", "left", "refused", "due", "session")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 3))))
def test_rooms_are_established_from_confirmation_to_deletion(events: list[tuple[str, int]]) -> None:
    states, established = RoomMemberships(), set[str]()
    for now_s, (event, number) in enumerate(events):
        room = f"{number}@rooms.example"
        match event:
            case "invitation":
                actions = states.on_invitation(invitation(room), float(now_s))
            case "checked":
                actions = states.on_address_checked(room, is_group_chat=True)
            case "joined":
                actions = states.on_occupant_presence(joined(room), float(now_s))
            case "left":
                removed = OccupantPresence(
                    room, "Coronet", "none", is_present=False, statuses=frozenset(("307",)), is_destroyed=False
                )
                actions = states.on_occupant_presence(removed, float(now_s))
            case "refused":
                actions = states.on_join_refused(RoomJoinRefused(room, "forbidden"))
            case "due":
                actions = states.due_actions(float(now_s))
            case _:
                actions = states.on_session_started(float(now_s))
        established |= {action.room for action in actions if isinstance(action, ConfirmRoom)}
        established -= {action.room for action in actions if isinstance(action, DeleteRoom)}
        assert {
            f"{each}@rooms.example" for each in range(4) if is_established(states, f"{each}@rooms.example")
        } == established


def test_the_number_of_rooms_is_limited() -> None:
    states = RoomMemberships()
    for number in range(MAX_ROOMS + 10):
        states.on_invitation(invitation(f"{number}@rooms.{number}.example", f"{number}@{number}.example"), 0.0)
    assert states.on_invitation(invitation(), 0.0) == [NotifyInviter("alice@example", ROOM, "too many rooms")]
    assert states.on_invitation(invitation(is_vouched=False), 0.0) == []


@pytest.mark.parametrize(
    ("room", "by", "limit"),
    [
        ("{}@rooms.evil.org", "", MAX_ROOMS_PER_SITE),
        ("{0}@{0}.evil.org", "", MAX_ROOMS_PER_SITE),
        ("{0}@rooms.{0}.org", "{0}@evil.org", MAX_ROOMS_PER_SITE),
        ("{0}@rooms.{0}.org", "eve@evil.org", MAX_ROOMS_PER_INVITER),
    ],
)
def test_rooms_are_limited_per_site_and_per_inviter(room: str, by: str, limit: int) -> None:
    states = RoomMemberships()
    for number in range(limit + 10):
        states.on_invitation(invitation(room.format(number), by.format(number), is_vouched=bool(by)), 0.0)
    assert [states.is_known(room.format(number)) for number in (limit - 1, limit)] == [True, False]
    assert states.on_invitation(invitation(), 0.0) == [CheckAddress(ROOM)]
