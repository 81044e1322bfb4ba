"""The policy on invitations: trust in the name of the inviter, and limits on rooms."""

import pytest

from bots.rooms.invitation_policy import MAX_ROOMS_PER_INVITER, can_vouch, has_space


@pytest.mark.parametrize(
    ("room", "jid", "can"),
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
def test_a_service_vouches_only_for_users_of_its_own_server(room: str, jid: str, *, can: bool) -> None:
    """Neither on the server's own domain, which has accounts, nor below a public suffix."""
    assert can_vouch(room, jid) is can


def test_the_number_of_rooms_per_inviter_is_limited() -> None:
    inviters = {f"{number}@rooms.{number}.org": "eve@evil.org" for number in range(MAX_ROOMS_PER_INVITER)}
    assert not has_space("new@rooms.new.org", "eve@evil.org", inviters)
    assert has_space("new@rooms.new.org", "alice@example.org", inviters)
