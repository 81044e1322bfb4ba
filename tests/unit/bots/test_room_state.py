"""Rooms that want us, let us in, turn us out, or fall silent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.rooms.room_state import (
    INVITATION_TIMEOUT_S,
    MAX_GUESTS,
    MAX_MANAGERS,
    MAX_ROOMS,
    MAX_ROOMS_PER_INVITER,
    MAX_ROOMS_PER_SITE,
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
    RoomStates,
    can_vouch,
)
from bots.xmpp.events import OccupantPresence, RoomInvitation, RoomJoinRefused, RoomMessageReceived
from service.store.client.keys import user_id
from service.store.people.rooms import Room

ROOM = "lounge@rooms.example"
NOBODY = frozenset[str]()


def came(room: str = ROOM, nick: str = "Coronet", *statuses: str) -> OccupantPresence:
    """We are in."""
    return OccupantPresence(
        room, nick, "none", is_present=True, statuses=frozenset(("110", *statuses)), is_destroyed=False
    )


def went(*statuses: str, destroyed: bool = False) -> OccupantPresence:
    """We are out."""
    return OccupantPresence(
        ROOM, "Coronet", "none", is_present=False, statuses=frozenset(("110", *statuses)), is_destroyed=destroyed
    )


def occupant(nick: str, affiliation: str, *, is_present: bool = True, jid: str = "") -> OccupantPresence:
    """Somebody else came or went."""
    return OccupantPresence(ROOM, nick, affiliation, is_present, NOBODY, is_destroyed=False, jid=jid)


def invitation(
    room: str = ROOM, by: str = "alice@example", password: str = "", *, is_vouched: bool = True
) -> RoomInvitation:
    """Somebody who may wants us there."""
    return RoomInvitation(room, by, password, is_vouched=is_vouched)


def settle(*people: str, nick: str = "Coronet") -> ConfirmRoom:
    """The room to which alice invited us has let us in, and these are behind it."""
    return ConfirmRoom(ROOM, Room(nick, "secret", "alice@example"), frozenset(map(user_id, people)), is_new=True)


def said(
    nick: str, text: str, *, reply_to_id: str = "", room_id: str = "", is_reaction: bool = False
) -> RoomMessageReceived:
    """Somebody spoke."""
    return RoomMessageReceived(ROOM, nick, "id", room_id, text, "", reply_to_id, is_reaction)


def entering() -> RoomStates:
    """We were invited, and have asked to be let in."""
    states = RoomStates()
    states.on_invitation(invitation(password="secret"), 0.0)
    states.on_address_checked(ROOM, is_group_chat=True)
    return states


def inside() -> RoomStates:
    """We were invited and let in."""
    states = entering()
    states.on_occupant_presence(came(), 1.0)
    states.confirm(ROOM)
    return states


def is_ours(states: RoomStates, room: str) -> bool:
    """Whether the room has let us in at some time, and has not turned us out since."""
    return room in states._rooms and states._rooms[room].is_established


def test_an_invitation_is_followed_and_the_room_becomes_ours_once_it_lets_us_in() -> None:
    states = RoomStates()
    assert states.on_invitation(invitation(password="secret"), 0.0) == [CheckAddress(ROOM)]
    assert states.on_address_checked(ROOM, is_group_chat=True) == [JoinRoom(ROOM, "Coronet", "secret")]
    assert not is_ours(states, ROOM), "whoever is invited there must not make an address a room by that"
    assert states.on_occupant_presence(came(), 1.0) == [settle("alice@example")]
    assert is_ours(states, ROOM)
    assert states.confirm(ROOM)
    assert states.on_invitation(invitation(by="bob@example"), 2.0) == []


@pytest.mark.parametrize("answer", [False, None])
def test_what_is_no_group_chat_is_not_entered(*, answer: bool | None) -> None:
    states = RoomStates()
    states.on_invitation(invitation(), 0.0)
    assert states.on_occupant_presence(came(), 0.5) == [], "we have not asked to be let in"
    assert states.on_address_checked(ROOM, is_group_chat=answer) == [
        ReleaseAddress(ROOM),
        NotifyInviter("alice@example", ROOM, "no group chat"),
    ]
    assert states.on_occupant_presence(came(), 1.0) == []
    states.on_invitation(invitation(is_vouched=False), 2.0)
    assert states.on_address_checked(ROOM, is_group_chat=answer) == [ReleaseAddress(ROOM)], (
        "that may be somebody else's name"
    )


def test_a_room_of_ours_is_checked_again_each_time() -> None:
    states = RoomStates()
    states.load({ROOM: Room("Coronet"), "bob@example": Room("Coronet")}, {}, 0.0)
    assert states.due_actions(0.0) == [CheckAddress(ROOM), CheckAddress("bob@example")]
    assert states.on_address_checked(ROOM, is_group_chat=None) == [], "its server may be away"
    assert states.on_address_checked("bob@example", is_group_chat=False) == [DeleteRoom("bob@example")]
    assert states.due_actions(15.0) == [CheckAddress(ROOM)]
    assert states.on_address_checked(ROOM, is_group_chat=True) == [JoinRoom(ROOM, "Coronet", "")]
    assert states.on_address_checked(ROOM, is_group_chat=True) == []


def test_nobody_speaks_for_a_room_that_is_not_settled() -> None:
    states = entering()
    states.on_occupant_presence(occupant("alice", "owner"), 1.0)
    assert not states.is_manager(ROOM, "alice")
    assert states.addressed_text(said("alice", "Coronet: list")) is None
    states.on_occupant_presence(came(), 1.0)
    assert states.addressed_text(said("alice", "Coronet: list")) is None
    assert not states.record_echo(said("Coronet", "news", room_id="r1"))
    states.confirm(ROOM)
    assert states.is_manager(ROOM, "alice")
    assert states.addressed_text(said("alice", "Coronet: list")) is not None
    states.on_room_lost(ROOM, 2.0)
    assert not states.is_manager(ROOM, "alice")


def test_only_a_presence_of_our_own_lets_us_in() -> None:
    states = entering()
    somebody = OccupantPresence(ROOM, "Coronet", "none", is_present=True, statuses=NOBODY, is_destroyed=False)
    assert states.on_occupant_presence(somebody, 1.0) == [], "they have the nick that we asked for"
    assert states.on_occupant_presence(came(nick="eve"), 1.0) == []
    assert states.on_occupant_presence(came(ROOM, "Coronet (bot)", STATUS_NICK_CHANGED), 1.0) == [
        settle("alice@example", nick="Coronet (bot)")
    ]


def test_who_is_behind_a_room_is_known_as_far_as_it_shows_them() -> None:
    states = entering()
    states.on_occupant_presence(occupant("bob", "owner", jid="bob@example"), 1.0)
    states.on_occupant_presence(occupant("carol", "admin", jid="carol@example"), 1.0)
    states.on_occupant_presence(occupant("dan", "owner"), 1.0)
    states.on_occupant_presence(occupant("eve", "none", jid="eve@example"), 1.0)
    assert states.on_occupant_presence(came(), 1.0) == [settle("alice@example", "bob@example")]
    found = [states.occupant_user_id(ROOM, nick) for nick in ("bob", "carol", "dan", "eve", "nobody")]
    assert found == [user_id("bob@example"), user_id("carol@example"), "", user_id("eve@example"), ""]


def test_a_room_of_somebody_suspended_is_left() -> None:
    states = entering()
    states.on_occupant_presence(came(), 1.0)
    assert states.on_suspended(ROOM, 1.0, is_new=True) == [LeaveRoom(ROOM, "Coronet"), ReleaseAddress(ROOM)]
    states = inside()
    assert states.on_suspended(ROOM, 2.0, is_new=False) == [LeaveRoom(ROOM, "Coronet")], "it may be lifted"
    assert is_ours(states, ROOM)
    assert states.addressed_text(said("alice", "Coronet: list")) is None
    assert states.due_actions(2.0 + 3_600.0) == [CheckAddress(ROOM)]


def test_of_people_in_a_room_only_so_many_are_known() -> None:
    states = inside()
    for number in range(MAX_MANAGERS + MAX_GUESTS + 10):
        states.on_occupant_presence(occupant(f"admin {number}", "admin"), 1.0)
        states.on_occupant_presence(occupant(f"guest {number}", "none", jid=f"{number}@example"), 1.0)
    assert states.is_manager(ROOM, f"admin {MAX_MANAGERS - 1}")
    assert not states.is_manager(ROOM, f"admin {MAX_MANAGERS}")
    assert states.occupant_user_id(ROOM, f"guest {MAX_GUESTS - 1}")
    assert not states.occupant_user_id(ROOM, f"guest {MAX_GUESTS}")


def test_a_reply_to_what_was_told_before_a_restart_is_still_understood() -> None:
    states = RoomStates()
    states.load({ROOM: Room("Coronet")}, {ROOM: {"theirs": "ours", "other": "another"}}, 0.0)
    states.on_address_checked(ROOM, is_group_chat=True)
    states.on_occupant_presence(came(), 1.0)
    states.confirm(ROOM)
    states.record_echo(said("Coronet", "news", room_id="fresh"))
    spoken = states.addressed_text(said("bob", "pause", reply_to_id="theirs"))
    assert spoken is not None
    assert spoken.reply_to_id == "ours"
    assert states.addressed_text(said("bob", "pause", reply_to_id="fresh")) is not None
    assert states.addressed_text(said("bob", "pause", reply_to_id="unknown")) is None


@pytest.mark.parametrize(
    ("room", "jid", "is_theirs"),
    [
        ("lounge@rooms.example", "alice@example", True),
        ("lounge@rooms.chat.example.org", "alice@chat.example.org", True),
        ("lounge@rooms.example.org", "alice@chat.example.org", False),
        ("lounge@example", "alice@example", False),
        ("lounge@evil.github.io", "alice@github.io", False),
        ("lounge@rooms.elsewhere", "alice@example", False),
        ("lounge@rooms-example", "alice@example", False),
        ("lounge@rooms.example", "lounge@rooms.example", False),
        ("lounge@example", "alice@rooms.example", False),
    ],
)
def test_a_room_is_believed_of_people_of_its_own_server(room: str, jid: str, *, is_theirs: bool) -> None:
    """Not on a domain that may have accounts, or that anybody can have below a public one."""
    assert can_vouch(room, jid) is is_theirs


def test_a_room_that_we_made_by_entering_it_is_left() -> None:
    states = entering()
    assert states.on_occupant_presence(came(ROOM, "Coronet", STATUS_CREATED), 1.0) == [
        LeaveRoom(ROOM, "Coronet"),
        ReleaseAddress(ROOM),
    ]
    assert not is_ours(states, ROOM)
    states = RoomStates()
    states.load({ROOM: Room("Coronet")}, {}, 0.0)
    states.on_address_checked(ROOM, is_group_chat=True)
    assert states.on_occupant_presence(came(ROOM, "Coronet", STATUS_CREATED), 1.0) == [LeaveRoom(ROOM, "Coronet")]
    assert is_ours(states, ROOM), "its owners may open it again"


def test_another_name_is_taken_where_ours_is_taken() -> None:
    states = entering()
    assert states.on_join_refused(RoomJoinRefused(ROOM, "conflict")) == [JoinRoom(ROOM, "Coronet-2", "secret")]
    assert states.on_occupant_presence(came(nick="Coronet-2"), 1.0) == [settle("alice@example", nick="Coronet-2")]


def test_who_invited_us_in_vain_is_told() -> None:
    refused = [ReleaseAddress(ROOM), NotifyInviter("alice@example", ROOM, "refused")]
    assert entering().on_join_refused(RoomJoinRefused(ROOM, "registration-required")) == refused


def test_whoever_turns_us_out_is_rid_of_us() -> None:
    for event in (*(went(status) for status in REMOVAL_STATUSES), went(destroyed=True)):
        states = inside()
        assert states.on_occupant_presence(event, 9.0) == [DeleteRoom(ROOM)]
        assert states.due_actions(1e9) == []


def test_a_room_that_was_shut_down_is_entered_again_later_each_time() -> None:
    states = inside()
    assert states.on_occupant_presence(went("332"), 10.0) == []
    asked = [now_s for now_s in range(10, 200) if states.due_actions(float(now_s))]
    assert asked[:4] == [10, 25, 55, 115]
    states.on_address_checked(ROOM, is_group_chat=True)
    assert states.on_join_refused(RoomJoinRefused(ROOM, "remote-server-timeout")) == [], "that may pass"
    assert states.on_join_refused(RoomJoinRefused(ROOM, "forbidden")) == [DeleteRoom(ROOM)], "that is a ban"


def test_a_new_session_enters_all_rooms_and_forgets_open_invitations() -> None:
    states = inside()
    states.on_invitation(invitation("other@rooms.example"), 2.0)
    assert states.on_session_started(3.0) == [ReleaseAddress("other@rooms.example")]
    assert states.due_actions(3.0) == [CheckAddress(ROOM)]
    assert not states.confirm(ROOM), "that was in the session before"


def test_an_invitation_to_nowhere_is_forgotten() -> None:
    states = entering()
    assert states.due_actions(INVITATION_TIMEOUT_S + 1) == [LeaveRoom(ROOM, "Coronet"), ReleaseAddress(ROOM)]
    assert states.on_occupant_presence(came(), INVITATION_TIMEOUT_S + 2) == []


def test_only_what_is_said_to_us_is_heard() -> None:
    states = inside()
    states.on_occupant_presence(occupant("alice", "owner"), 2.0)
    for text, heard in [
        ("Coronet: list", "list"), ("@coronet, list", "list"), ("coronet list", "list"), ("Coronet", ""),
        ("Coronets are fine", None), ("list", None), ("I like Coronet: a lot", None),
    ]:  # fmt: skip
        spoken = states.addressed_text(said("alice", text))
        assert (spoken.text if spoken else None) == heard, text


def test_owners_and_admins_manage_a_room_while_they_are_there() -> None:
    states = inside()
    for nick, affiliation in (("alice", "owner"), ("bob", "admin"), ("eve", "member")):
        states.on_occupant_presence(occupant(nick, affiliation), 2.0)
    assert [states.is_manager(ROOM, nick) for nick in ("alice", "bob", "eve")] == [True, True, False]
    states.on_occupant_presence(occupant("bob", "none"), 3.0)
    states.on_occupant_presence(occupant("alice", "owner", is_present=False), 3.0)
    assert not states.is_manager(ROOM, "alice"), "somebody else may have taken that name"
    assert not states.is_manager(ROOM, "bob")


def test_under_a_message_of_ours_no_name_is_needed() -> None:
    states = inside()
    states.on_occupant_presence(occupant("alice", "owner"), 2.0)
    assert states.record_echo(said("Coronet", "news", room_id="r1"))
    spoken = states.addressed_text(said("alice", "stop", reply_to_id="r1"))
    assert spoken is not None
    assert (spoken.text, spoken.reply_to_id, spoken.can_manage) == ("stop", "id", True)
    assert states.addressed_text(said("alice", "stop", reply_to_id="r2")) is None
    assert states.addressed_text(said("alice", "", reply_to_id="r1")) is None, "it only quotes us"
    assert states.addressed_text(said("eve", "unsubscribe", reply_to_id="r1", is_reaction=True)) is None, (
        "a guest merely likes or not"
    )


EVENTS = ("invite", "check", "came", "went", "refused", "due", "restart")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 3))))
def test_whatever_comes_rooms_are_ours_from_settling_to_giving_up(events: list[tuple[str, int]]) -> None:
    states, ours = RoomStates(), set[str]()
    for now_s, (what, number) in enumerate(events):
        room = f"{number}@rooms.example"
        match what:
            case "invite":
                deeds = states.on_invitation(invitation(room), float(now_s))
            case "check":
                deeds = states.on_address_checked(room, is_group_chat=True)
            case "came":
                deeds = states.on_occupant_presence(came(room), float(now_s))
            case "went":
                gone = OccupantPresence(
                    room, "Coronet", "none", is_present=False, statuses=frozenset(("307",)), is_destroyed=False
                )
                deeds = states.on_occupant_presence(gone, float(now_s))
            case "refused":
                deeds = states.on_join_refused(RoomJoinRefused(room, "forbidden"))
            case "due":
                deeds = states.due_actions(float(now_s))
            case _:
                deeds = states.on_session_started(float(now_s))
        ours |= {deed.room for deed in deeds if isinstance(deed, ConfirmRoom)}
        ours -= {deed.room for deed in deeds if isinstance(deed, DeleteRoom)}
        assert {f"{each}@rooms.example" for each in range(4) if is_ours(states, f"{each}@rooms.example")} == ours


def test_there_is_an_end_to_rooms() -> None:
    states = RoomStates()
    for number in range(MAX_ROOMS + 10):
        states.on_invitation(invitation(f"{number}@rooms.{number}.example", f"{number}@{number}.example"), 0.0)
    assert states.on_invitation(invitation(), 0.0) == [NotifyInviter("alice@example", ROOM, "too many rooms")]
    assert states.on_invitation(invitation(is_vouched=False), 0.0) == []


@pytest.mark.parametrize(
    ("room", "by", "most"),
    [
        ("{}@rooms.evil.org", "", MAX_ROOMS_PER_SITE),
        ("{0}@{0}.evil.org", "", MAX_ROOMS_PER_SITE),
        ("{0}@rooms.{0}.org", "{0}@evil.org", MAX_ROOMS_PER_SITE),
        ("{0}@rooms.{0}.org", "eve@evil.org", MAX_ROOMS_PER_INVITER),
    ],
)
def test_nobody_uses_up_all_rooms(room: str, by: str, most: int) -> None:
    states = RoomStates()
    for number in range(most + 10):
        states.on_invitation(invitation(room.format(number), by.format(number), is_vouched=bool(by)), 0.0)
    assert [states.is_known(room.format(number)) for number in (most - 1, most)] == [True, False]
    assert states.on_invitation(invitation(), 0.0) == [CheckAddress(ROOM)]
