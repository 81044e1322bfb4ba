"""Input that does not belong to this store raises a clear error and changes nothing."""

import pytest

from service.clash.group_search import MAX_PROBES, DepthCache, DepthSearch
from service.clash.key_groups import KeyGroup, KeyLayout, Keyspaces, check_key
from service.clash.move_steps import AcceptKeyGroup, MergeGroup, SplitGroup, apply
from service.clash.server_table import empty_table, from_fields, root_table, to_fields
from service.clash.table_transitions import IncorrectDepth, accept_object
from service.errors import BadKey, KeyGroupMoving, MoveRefused, UnknownKeyspace, from_fault, to_fault

BITS = 8
ROOT = KeyGroup(0, 0, BITS)
KEYSPACES = Keyspaces(4)
HOME = KEYSPACES.keyspace_of(ROOT)


@pytest.mark.parametrize("key", [-1, 1 << BITS, 1 << 40])
def test_a_key_of_another_length_raises(key: int) -> None:
    table = root_table(HOME, BITS)
    with pytest.raises(BadKey, match="no identifier key of 8 bits"):
        accept_object(table, key)
    with pytest.raises(BadKey):
        DepthSearch(key, BITS, KEYSPACES, DepthCache())


def test_the_layout_creates_keys_of_its_length() -> None:
    layout = KeyLayout(domain_bits=4, channel_bits=2, subscriber_bits=2)
    check_key(layout.key("example.org", "a" * 40, "ada"), BITS)
    assert layout.bits == BITS


@pytest.mark.parametrize("label", ["", "0102*", "01", "011010100", "01101010*", "x*", "**"])
def test_a_malformed_label_raises(label: str) -> None:
    with pytest.raises(BadKey, match="labels no group of keys of 8 bits"):
        KeyGroup.from_label(label, BITS)


@pytest.mark.parametrize("keyspace", [-1, 4, 1000])
def test_an_unknown_keyspace_raises(keyspace: int) -> None:
    with pytest.raises(UnknownKeyspace, match="no keyspace"):
        KEYSPACES.check(keyspace)
    with pytest.raises(UnknownKeyspace):
        from_fields(keyspace, to_fields(root_table(0, BITS)), KEYSPACES, BITS)


@pytest.mark.parametrize(
    ("field", "text", "error", "said"),
    [
        ("bits", "32", BadKey, "has keys of 32 bits, not 8"),
        ("0*", "sleeping", BadKey, "describes no group"),
        ("0*", "split parent=0 right=4", UnknownKeyspace, "no keyspace 4"),
        ("0*", "active parent=9", UnknownKeyspace, "no keyspace 9"),
        ("01", "active", BadKey, "labels no group"),
        ("seen:7", "1", UnknownKeyspace, "no keyspace 7"),
        ("seen:1", "-1", BadKey, "is no number"),
        ("move", "1 split 5 1* giving", UnknownKeyspace, "no keyspace 5"),
        ("move", "1 split 1 1* resting", BadKey, "describes no move"),
        ("moves", "", BadKey, "is no number"),
    ],
)
def test_a_table_of_another_layout_raises(field: str, text: str, error: type[Exception], said: str) -> None:
    fields = to_fields(root_table(HOME, BITS)) | {field: text}
    with pytest.raises(error, match=said):
        from_fields(HOME, fields, KEYSPACES, BITS)


def test_a_table_with_a_move_survives_encoding() -> None:
    split = apply(root_table(HOME, BITS), SplitGroup(HOME, ROOT), KEYSPACES)
    assert split.move is not None
    child = apply(empty_table(split.move.child, BITS), AcceptKeyGroup(split.move), KEYSPACES)
    for table in (split, child):
        assert from_fields(table.keyspace, to_fields(table), KEYSPACES, BITS) == table


def test_an_impossible_split_or_merge_states_the_reason() -> None:
    table = root_table(HOME, BITS)
    with pytest.raises(MoveRefused, match=r"0\* cannot be split: it is not here"):
        apply(table, SplitGroup(HOME, ROOT.left), KEYSPACES)
    with pytest.raises(MoveRefused, match=r"\* cannot be merged"):
        apply(table, MergeGroup(HOME, ROOT), KEYSPACES)
    busy = apply(table, SplitGroup(HOME, ROOT), KEYSPACES)
    assert busy.move is not None
    leaf = next(group for group, entry in busy.entries.items() if entry.state == "active")
    with pytest.raises(MoveRefused, match="busy with another move"):
        apply(busy, SplitGroup(HOME, leaf), KEYSPACES)
    with pytest.raises(MoveRefused, match="busy with another move"):
        apply(busy, MergeGroup(HOME, ROOT), KEYSPACES)


def test_a_single_keyspace_cannot_split() -> None:
    table = root_table(0, BITS)
    with pytest.raises(MoveRefused, match="needs a key of more than 8 bits"):
        apply(table, SplitGroup(0, ROOT), Keyspaces(1))


def test_a_search_without_end_raises() -> None:
    search = DepthSearch(5, BITS, KEYSPACES, DepthCache())
    with pytest.raises(KeyGroupMoving, match="keeps moving"):  # noqa: PT012 - the search goes on until it raises
        for _ in range(MAX_PROBES):
            assert search.on_answer(IncorrectDepth(BITS)) is None


@pytest.mark.parametrize("error", [BadKey, UnknownKeyspace, MoveRefused, KeyGroupMoving])
def test_errors_can_be_pickled(error: type[BadKey]) -> None:
    again = from_fault(to_fault(error("why")))
    assert (type(again), str(again)) == (error, "why")
