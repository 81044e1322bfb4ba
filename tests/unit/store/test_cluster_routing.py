"""The cluster slot of a command, compared with what Redis reports."""

import pytest

from service.store.client.cluster_routing import READ_ONLY_MARKER, SlotMap, is_write, slot_of
from service.store.client.node_connections import Command


@pytest.mark.parametrize(
    ("command", "slot"),
    [
        (("GET", "foo"), 12182),  # as CLUSTER KEYSLOT answers
        (("HSET", "a{foo}b", "field", 1), 12182),
        (("EVAL", "return 1", 2, "{foo}", "x{foo}", "bar"), 12182),
        (("EVAL", "return 1", 0, "bar"), None),
        (("XREAD", "COUNT", 5, "BLOCK", 10, "STREAMS", "foo", "$"), 12182),
        (("PING",), None),
    ],
)
def test_the_first_key_of_a_command_determines_its_slot(command: Command, slot: int | None) -> None:
    assert slot_of(command) == slot


def test_only_commands_that_may_change_data_are_writes() -> None:
    assert [is_write(command) for command in (("SET", "a", 1), ("EVAL", "return 1", 1, "a"))] == [True, True]
    assert not any(map(is_write, [("GET", "a"), ("PING",), ("EVAL", f"{READ_ONLY_MARKER}\nreturn 1", 1, "a")]))


def test_the_slot_map_returns_the_master_of_a_slot_and_the_replicated_masters() -> None:
    """A node that does not know its own address leaves it out: it is where we asked."""
    first, second = [b"10.0.0.1", 7000, b"id"], [b"", 7001, b"id"]
    found = SlotMap()
    found.update([[8192, 16383, second], [0, 8191, first, [b"10.0.0.3", 7002, b"id"]]], ("10.0.0.2", 7001))
    assert [found.master(slot) for slot in (0, 8191, 8192, 16383)] == [("10.0.0.1", 7000)] * 2 + [
        ("10.0.0.2", 7001)
    ] * 2
    assert found.replicated == {("10.0.0.1", 7000)}
