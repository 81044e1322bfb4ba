"""Rooms that want us, let us in, turn us out, or fall silent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.rooms.room_state import (
    ANSWERS_WITHIN_S,
    CREATED,
    MOST_GUESTS,
    MOST_MANAGERS,
    MOST_ROOMS,
    MOST_ROOMS_OF_A_SITE,
    MOST_ROOMS_OF_AN_INVITER,
    RENAMED,
    TURNED_OUT,
    Check,
    Drop,
    Enter,
    Excuse,
    GiveUp,
    Leave,
    Settle,
    Visits,
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


def settle(*people: str, nick: str = "Coronet") -> Settle:
    """The room to which alice invited us has let us in, and these are behind it."""
    return Settle(ROOM, Room(nick, "secret", "alice@example"), frozenset(map(user_id, people)), is_new=True)


def said(
    nick: str, text: str, *, reply_to_id: str = "", room_id: str = "", is_reaction: bool = False
) -> RoomMessageReceived:
    """Somebody spoke."""
    return RoomMessageReceived(ROOM, nick, "id", room_id, text, "", reply_to_id, is_reaction)


def entering() -> Visits:
    """We were invited, and have asked to be let in."""
    visits = Visits()
    visits.invited(invitation(password="secret"), 0.0)
    visits.checked(ROOM, is_group_chat=True)
    return visits


def inside() -> Visits:
    """We were invited and let in."""
    visits = entering()
    visits.moved(came(), 1.0)
    visits.settled(ROOM)
    return visits


def is_ours(visits: Visits, room: str) -> bool:
    """Whether the room has let us in at some time, and has not turned us out since."""
    return room in visits._visits and visits._visits[room].ours


def test_an_invitation_is_followed_and_the_room_becomes_ours_once_it_lets_us_in() -> None:
    visits = Visits()
    assert visits.invited(invitation(password="secret"), 0.0) == [Check(ROOM)]
    assert visits.checked(ROOM, is_group_chat=True) == [Enter(ROOM, "Coronet", "secret")]
    assert not is_ours(visits, ROOM), "whoever is invited there must not make an address a room by that"
    assert visits.moved(came(), 1.0) == [settle("alice@example")]
    assert is_ours(visits, ROOM)
    assert visits.settled(ROOM)
    assert visits.invited(invitation(by="bob@example"), 2.0) == []


@pytest.mark.parametrize("answer", [False, None])
def test_what_is_no_group_chat_is_not_entered(*, answer: bool | None) -> None:
    visits = Visits()
    visits.invited(invitation(), 0.0)
    assert visits.moved(came(), 0.5) == [], "we have not asked to be let in"
    assert visits.checked(ROOM, is_group_chat=answer) == [Drop(ROOM), Excuse("alice@example", ROOM, "no group chat")]
    assert visits.moved(came(), 1.0) == []
    visits.invited(invitation(is_vouched=False), 2.0)
    assert visits.checked(ROOM, is_group_chat=answer) == [Drop(ROOM)], "that may be somebody else's name"


def test_a_room_of_ours_is_checked_again_each_time() -> None:
    visits = Visits()
    visits.remember({ROOM: Room("Coronet"), "bob@example": Room("Coronet")}, {}, 0.0)
    assert visits.due(0.0) == [Check(ROOM), Check("bob@example")]
    assert visits.checked(ROOM, is_group_chat=None) == [], "its server may be away"
    assert visits.checked("bob@example", is_group_chat=False) == [GiveUp("bob@example")]
    assert visits.due(15.0) == [Check(ROOM)]
    assert visits.checked(ROOM, is_group_chat=True) == [Enter(ROOM, "Coronet", "")]
    assert visits.checked(ROOM, is_group_chat=True) == []


def test_nobody_speaks_for_a_room_that_is_not_settled() -> None:
    visits = entering()
    visits.moved(occupant("alice", "owner"), 1.0)
    assert not visits.is_manager(ROOM, "alice")
    assert visits.to_us(said("alice", "Coronet: list")) is None
    visits.moved(came(), 1.0)
    assert visits.to_us(said("alice", "Coronet: list")) is None
    assert not visits.is_echo(said("Coronet", "news", room_id="r1"))
    visits.settled(ROOM)
    assert visits.is_manager(ROOM, "alice")
    assert visits.to_us(said("alice", "Coronet: list")) is not None
    visits.lost(ROOM, 2.0)
    assert not visits.is_manager(ROOM, "alice")


def test_only_a_presence_of_our_own_lets_us_in() -> None:
    visits = entering()
    somebody = OccupantPresence(ROOM, "Coronet", "none", is_present=True, statuses=NOBODY, is_destroyed=False)
    assert visits.moved(somebody, 1.0) == [], "they have the nick that we asked for"
    assert visits.moved(came(nick="eve"), 1.0) == []
    assert visits.moved(came(ROOM, "Coronet (bot)", RENAMED), 1.0) == [settle("alice@example", nick="Coronet (bot)")]


def test_who_is_behind_a_room_is_known_as_far_as_it_shows_them() -> None:
    visits = entering()
    visits.moved(occupant("bob", "owner", jid="bob@example"), 1.0)
    visits.moved(occupant("carol", "admin", jid="carol@example"), 1.0)
    visits.moved(occupant("dan", "owner"), 1.0)
    visits.moved(occupant("eve", "none", jid="eve@example"), 1.0)
    assert visits.moved(came(), 1.0) == [settle("alice@example", "bob@example")]
    found = [visits.person(ROOM, nick) for nick in ("bob", "carol", "dan", "eve", "nobody")]
    assert found == [user_id("bob@example"), user_id("carol@example"), "", user_id("eve@example"), ""]


def test_a_room_of_somebody_suspended_is_left() -> None:
    visits = entering()
    visits.moved(came(), 1.0)
    assert visits.suspended(ROOM, 1.0, is_new=True) == [Leave(ROOM, "Coronet"), Drop(ROOM)]
    visits = inside()
    assert visits.suspended(ROOM, 2.0, is_new=False) == [Leave(ROOM, "Coronet")], "it may be lifted"
    assert is_ours(visits, ROOM)
    assert visits.to_us(said("alice", "Coronet: list")) is None
    assert visits.due(2.0 + 3_600.0) == [Check(ROOM)]


def test_of_people_in_a_room_only_so_many_are_known() -> None:
    visits = inside()
    for number in range(MOST_MANAGERS + MOST_GUESTS + 10):
        visits.moved(occupant(f"admin {number}", "admin"), 1.0)
        visits.moved(occupant(f"guest {number}", "none", jid=f"{number}@example"), 1.0)
    assert visits.is_manager(ROOM, f"admin {MOST_MANAGERS - 1}")
    assert not visits.is_manager(ROOM, f"admin {MOST_MANAGERS}")
    assert visits.person(ROOM, f"guest {MOST_GUESTS - 1}")
    assert not visits.person(ROOM, f"guest {MOST_GUESTS}")


def test_a_reply_to_what_was_told_before_a_restart_is_still_understood() -> None:
    visits = Visits()
    visits.remember({ROOM: Room("Coronet")}, {ROOM: {"theirs": "ours", "other": "another"}}, 0.0)
    visits.checked(ROOM, is_group_chat=True)
    visits.moved(came(), 1.0)
    visits.settled(ROOM)
    visits.is_echo(said("Coronet", "news", room_id="fresh"))
    spoken = visits.to_us(said("bob", "pause", reply_to_id="theirs"))
    assert spoken is not None
    assert spoken.reply_to_id == "ours"
    assert visits.to_us(said("bob", "pause", reply_to_id="fresh")) is not None
    assert visits.to_us(said("bob", "pause", reply_to_id="unknown")) is None


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
    visits = entering()
    assert visits.moved(came(ROOM, "Coronet", CREATED), 1.0) == [Leave(ROOM, "Coronet"), Drop(ROOM)]
    assert not is_ours(visits, ROOM)
    visits = Visits()
    visits.remember({ROOM: Room("Coronet")}, {}, 0.0)
    visits.checked(ROOM, is_group_chat=True)
    assert visits.moved(came(ROOM, "Coronet", CREATED), 1.0) == [Leave(ROOM, "Coronet")]
    assert is_ours(visits, ROOM), "its owners may open it again"


def test_another_name_is_taken_where_ours_is_taken() -> None:
    visits = entering()
    assert visits.refused(RoomJoinRefused(ROOM, "conflict")) == [Enter(ROOM, "Coronet-2", "secret")]
    assert visits.moved(came(nick="Coronet-2"), 1.0) == [settle("alice@example", nick="Coronet-2")]


def test_who_invited_us_in_vain_is_told() -> None:
    refused = [Drop(ROOM), Excuse("alice@example", ROOM, "refused")]
    assert entering().refused(RoomJoinRefused(ROOM, "registration-required")) == refused


def test_whoever_turns_us_out_is_rid_of_us() -> None:
    for event in (*(went(status) for status in TURNED_OUT), went(destroyed=True)):
        visits = inside()
        assert visits.moved(event, 9.0) == [GiveUp(ROOM)]
        assert visits.due(1e9) == []


def test_a_room_that_was_shut_down_is_entered_again_later_each_time() -> None:
    visits = inside()
    assert visits.moved(went("332"), 10.0) == []
    asked = [now_s for now_s in range(10, 200) if visits.due(float(now_s))]
    assert asked[:4] == [10, 25, 55, 115]
    visits.checked(ROOM, is_group_chat=True)
    assert visits.refused(RoomJoinRefused(ROOM, "remote-server-timeout")) == [], "that may pass"
    assert visits.refused(RoomJoinRefused(ROOM, "forbidden")) == [GiveUp(ROOM)], "that is a ban"


def test_a_new_session_enters_all_rooms_and_forgets_open_invitations() -> None:
    visits = inside()
    visits.invited(invitation("other@rooms.example"), 2.0)
    assert visits.restart(3.0) == [Drop("other@rooms.example")]
    assert visits.due(3.0) == [Check(ROOM)]
    assert not visits.settled(ROOM), "that was in the session before"


def test_an_invitation_to_nowhere_is_forgotten() -> None:
    visits = entering()
    assert visits.due(ANSWERS_WITHIN_S + 1) == [Leave(ROOM, "Coronet"), Drop(ROOM)]
    assert visits.moved(came(), ANSWERS_WITHIN_S + 2) == []


def test_only_what_is_said_to_us_is_heard() -> None:
    visits = inside()
    visits.moved(occupant("alice", "owner"), 2.0)
    for text, heard in [
        ("Coronet: list", "list"), ("@coronet, list", "list"), ("coronet list", "list"), ("Coronet", ""),
        ("Coronets are fine", None), ("list", None), ("I like Coronet: a lot", None),
    ]:  # fmt: skip
        spoken = visits.to_us(said("alice", text))
        assert (spoken.text if spoken else None) == heard, text


def test_owners_and_admins_manage_a_room_while_they_are_there() -> None:
    visits = inside()
    for nick, affiliation in (("alice", "owner"), ("bob", "admin"), ("eve", "member")):
        visits.moved(occupant(nick, affiliation), 2.0)
    assert [visits.is_manager(ROOM, nick) for nick in ("alice", "bob", "eve")] == [True, True, False]
    visits.moved(occupant("bob", "none"), 3.0)
    visits.moved(occupant("alice", "owner", is_present=False), 3.0)
    assert not visits.is_manager(ROOM, "alice"), "somebody else may have taken that name"
    assert not visits.is_manager(ROOM, "bob")


def test_under_a_message_of_ours_no_name_is_needed() -> None:
    visits = inside()
    visits.moved(occupant("alice", "owner"), 2.0)
    assert visits.is_echo(said("Coronet", "news", room_id="r1"))
    spoken = visits.to_us(said("alice", "stop", reply_to_id="r1"))
    assert spoken is not None
    assert (spoken.text, spoken.reply_to_id, spoken.can_manage) == ("stop", "id", True)
    assert visits.to_us(said("alice", "stop", reply_to_id="r2")) is None
    assert visits.to_us(said("alice", "", reply_to_id="r1")) is None, "it only quotes us"
    assert visits.to_us(said("eve", "unsubscribe", reply_to_id="r1", is_reaction=True)) is None, (
        "a guest merely likes or not"
    )


EVENTS = ("invite", "check", "came", "went", "refused", "due", "restart")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 3))))
def test_whatever_comes_rooms_are_ours_from_settling_to_giving_up(events: list[tuple[str, int]]) -> None:
    visits, ours = Visits(), set[str]()
    for now_s, (what, number) in enumerate(events):
        room = f"{number}@rooms.example"
        match what:
            case "invite":
                deeds = visits.invited(invitation(room), float(now_s))
            case "check":
                deeds = visits.checked(room, is_group_chat=True)
            case "came":
                deeds = visits.moved(came(room), float(now_s))
            case "went":
                gone = OccupantPresence(
                    room, "Coronet", "none", is_present=False, statuses=frozenset(("307",)), is_destroyed=False
                )
                deeds = visits.moved(gone, float(now_s))
            case "refused":
                deeds = visits.refused(RoomJoinRefused(room, "forbidden"))
            case "due":
                deeds = visits.due(float(now_s))
            case _:
                deeds = visits.restart(float(now_s))
        ours |= {deed.room for deed in deeds if isinstance(deed, Settle)}
        ours -= {deed.room for deed in deeds if isinstance(deed, GiveUp)}
        assert {f"{each}@rooms.example" for each in range(4) if is_ours(visits, f"{each}@rooms.example")} == ours


def test_there_is_an_end_to_rooms() -> None:
    visits = Visits()
    for number in range(MOST_ROOMS + 10):
        visits.invited(invitation(f"{number}@rooms.{number}.example", f"{number}@{number}.example"), 0.0)
    assert visits.invited(invitation(), 0.0) == [Excuse("alice@example", ROOM, "too many rooms")]
    assert visits.invited(invitation(is_vouched=False), 0.0) == []


@pytest.mark.parametrize(
    ("room", "by", "most"),
    [
        ("{}@rooms.evil.org", "", MOST_ROOMS_OF_A_SITE),
        ("{0}@{0}.evil.org", "", MOST_ROOMS_OF_A_SITE),
        ("{0}@rooms.{0}.org", "{0}@evil.org", MOST_ROOMS_OF_A_SITE),
        ("{0}@rooms.{0}.org", "eve@evil.org", MOST_ROOMS_OF_AN_INVITER),
    ],
)
def test_nobody_uses_up_all_rooms(room: str, by: str, most: int) -> None:
    visits = Visits()
    for number in range(most + 10):
        visits.invited(invitation(room.format(number), by.format(number), is_vouched=bool(by)), 0.0)
    assert [visits.is_visited(room.format(number)) for number in (most - 1, most)] == [True, False]
    assert visits.invited(invitation(), 0.0) == [Check(ROOM)]
