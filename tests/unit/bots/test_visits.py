"""Rooms that want us, let us in, turn us out, or fall silent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots import muc
from bots.link import InRoom, Invited, RoomRefused, SaidInRoom
from bots.visits import ANSWERS_WITHIN_S, MOST_ROOMS, Enter, Excuse, GiveUp, Inside, Leave, Settle, Visits

ROOM = "lounge@rooms.example"
NOBODY = frozenset[str]()


def came(room: str = ROOM, nick: str = "Coronet", *statuses: str) -> InRoom:
    """We are in."""
    return InRoom(room, nick, "none", present=True, statuses=frozenset(("110", *statuses)), destroyed=False)


def went(*statuses: str, destroyed: bool = False) -> InRoom:
    """We are out."""
    return InRoom(ROOM, "Coronet", "none", present=False, statuses=frozenset(("110", *statuses)), destroyed=destroyed)


def occupant(nick: str, affiliation: str, *, present: bool = True) -> InRoom:
    """Somebody else came or went."""
    return InRoom(ROOM, nick, affiliation, present, NOBODY, destroyed=False)


def said(nick: str, text: str, *, points_at: str = "", room_id: str = "", reacted: bool = False) -> SaidInRoom:
    """Somebody spoke."""
    return SaidInRoom(ROOM, nick, "id", room_id, text, "", points_at, reacted)


def inside() -> Visits:
    """We were invited and let in."""
    visits = Visits()
    visits.invited(Invited(ROOM, "alice@example", "secret"), 0.0)
    visits.moved(came(), 1.0)
    return visits


def test_an_invitation_is_followed_and_the_room_becomes_ours_once_it_lets_us_in() -> None:
    visits = Visits()
    assert visits.invited(Invited(ROOM, "alice@example", "secret"), 0.0) == [Enter(ROOM, "Coronet", "secret")]
    assert not visits.is_ours(ROOM), "whoever is invited there must not make an address a room by that"
    assert visits.moved(came(), 1.0) == [Settle(ROOM, "Coronet", "secret"), Inside(ROOM)]
    assert visits.is_ours(ROOM)
    assert visits.invited(Invited(ROOM, "bob@example", ""), 2.0) == []


def test_a_reply_to_what_was_told_before_a_restart_is_still_understood() -> None:
    visits = Visits()
    visits.remember({ROOM: ("Coronet", "")}, {ROOM: {"theirs": "ours", "other": "another"}}, 0.0)
    visits.moved(came(), 1.0)
    visits.is_echo(said("Coronet", "news", room_id="fresh"))
    spoken = visits.to_us(said("bob", "pause", points_at="theirs"))
    assert spoken is not None
    assert spoken.points_at == "ours"
    assert visits.to_us(said("bob", "pause", points_at="fresh")) is not None
    assert visits.to_us(said("bob", "pause", points_at="unknown")) is None


@pytest.mark.parametrize(
    ("room", "jid", "is_theirs"),
    [
        ("lounge@rooms.example", "alice@example", True),
        ("lounge@example", "alice@example", True),
        ("lounge@rooms.elsewhere", "alice@example", False),
        ("lounge@rooms-example", "alice@example", False),
        ("lounge@rooms.example", "lounge@rooms.example", False),
        ("lounge@example", "alice@rooms.example", False),
    ],
)
def test_a_room_is_believed_of_people_of_its_own_server(room: str, jid: str, *, is_theirs: bool) -> None:
    assert muc.vouches(room, jid) is is_theirs


def test_a_room_that_we_made_by_entering_it_is_left() -> None:
    visits = Visits()
    visits.invited(Invited(ROOM, "alice@example", ""), 0.0)
    assert visits.moved(came(ROOM, "Coronet", muc.CREATED), 1.0) == [Leave(ROOM, "Coronet")]
    assert not visits.is_ours(ROOM)


def test_another_name_is_taken_where_ours_is_taken() -> None:
    visits = Visits()
    visits.invited(Invited(ROOM, "alice@example", ""), 0.0)
    assert visits.refused(RoomRefused(ROOM, "conflict")) == [Enter(ROOM, "Coronet-2", "")]
    assert visits.moved(came(nick="Coronet-2"), 1.0) == [Settle(ROOM, "Coronet-2", ""), Inside(ROOM)]


def test_who_invited_us_in_vain_is_told() -> None:
    visits = Visits()
    visits.invited(Invited(ROOM, "alice@example", ""), 0.0)
    assert visits.refused(RoomRefused(ROOM, "registration-required")) == [Excuse("alice@example", ROOM)]


def test_whoever_turns_us_out_is_rid_of_us() -> None:
    for event in (*(went(status) for status in muc.TURNED_OUT), went(destroyed=True)):
        visits = inside()
        assert visits.moved(event, 9.0) == [GiveUp(ROOM)]
        assert visits.due(1e9) == []


def test_a_room_that_was_shut_down_is_entered_again_later_each_time() -> None:
    visits = inside()
    assert visits.moved(went("332"), 10.0) == []
    asked = [now_s for now_s in range(10, 200) if visits.due(float(now_s))]
    assert asked[:4] == [10, 25, 55, 115]
    assert visits.refused(RoomRefused(ROOM, "remote-server-timeout")) == [], "that may pass"
    assert visits.refused(RoomRefused(ROOM, "forbidden")) == [GiveUp(ROOM)], "that is a ban"


def test_a_new_session_enters_all_rooms_and_forgets_open_invitations() -> None:
    visits = inside()
    visits.invited(Invited("other@rooms.example", "eve@example", ""), 2.0)
    visits.restart(3.0)
    assert visits.due(3.0) == [Enter(ROOM, "Coronet", "secret")]


def test_an_invitation_to_nowhere_is_forgotten() -> None:
    visits = Visits()
    visits.invited(Invited(ROOM, "eve@example", ""), 0.0)
    assert visits.due(ANSWERS_WITHIN_S + 1) == []
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
    visits.moved(occupant("alice", "owner", present=False), 3.0)
    assert not visits.is_manager(ROOM, "alice"), "somebody else may have taken that name"
    assert not visits.is_manager(ROOM, "bob")


def test_under_a_message_of_ours_no_name_is_needed() -> None:
    visits = inside()
    visits.moved(occupant("alice", "owner"), 2.0)
    assert visits.is_echo(said("Coronet", "news", room_id="r1"))
    spoken = visits.to_us(said("alice", "stop", points_at="r1"))
    assert spoken is not None
    assert (spoken.text, spoken.points_at, spoken.may_change) == ("stop", "id", True)
    assert visits.to_us(said("alice", "stop", points_at="r2")) is None
    assert visits.to_us(said("alice", "", points_at="r1")) is None, "it only quotes us"
    assert visits.to_us(said("eve", "unsubscribe", points_at="r1", reacted=True)) is None, "a guest merely likes or not"


@given(st.lists(st.tuples(st.sampled_from(["invite", "came", "went", "refused", "due", "restart"]), st.integers(0, 3))))
def test_whatever_comes_rooms_are_ours_from_settling_to_giving_up(events: list[tuple[str, int]]) -> None:
    visits, ours = Visits(), set[str]()
    for now_s, (what, number) in enumerate(events):
        room = f"{number}@rooms.example"
        match what:
            case "invite":
                deeds = visits.invited(Invited(room, "a@b", ""), float(now_s))
            case "came":
                deeds = visits.moved(came(room), float(now_s))
            case "went":
                gone = InRoom(room, "Coronet", "none", present=False, statuses=frozenset(("307",)), destroyed=False)
                deeds = visits.moved(gone, float(now_s))
            case "refused":
                deeds = visits.refused(RoomRefused(room, "forbidden"))
            case "due":
                deeds = visits.due(float(now_s))
            case _:
                visits.restart(float(now_s))
                deeds = []
        ours |= {deed.room for deed in deeds if isinstance(deed, Settle)}
        ours -= {deed.room for deed in deeds if isinstance(deed, GiveUp)}
        assert {f"{each}@rooms.example" for each in range(4) if visits.is_ours(f"{each}@rooms.example")} == ours


def test_there_is_an_end_to_rooms() -> None:
    visits = Visits()
    for number in range(MOST_ROOMS + 10):
        visits.invited(Invited(f"{number}@rooms.example", "eve@example", ""), 0.0)
    assert visits.invited(Invited(ROOM, "eve@example", ""), 0.0) == []
