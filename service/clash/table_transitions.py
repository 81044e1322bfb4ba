"""Transitions of server tables: splits (CLASH §V.A), merges (§IV.A, bottom-up), and AcceptObject (§V.B, Figure 4).

Each function is one step of a split or merge, in one of two keyspaces: in the keyspace of the parent group, or in the
keyspace of its right child. The argument ``table`` is the table of that keyspace. :func:`split` is the commit of a
split, from which on the right child belongs to its own keyspace. A merge is committed by :func:`give_key_group` in the
right child's keyspace; until then, the planned merge only keeps the left child unchanged. All steps except the first
may be repeated or arrive late, and then change nothing. An impossible step raises :class:`MoveRefused` and changes
nothing.

``AcceptObject`` is a keyspace's reply to a client that has guessed a key's depth, for reads and writes alike. In the
store, the reply and the write itself are one script, so that the leaf that accepts a record is the leaf that stores it.
A client that was redirected by the keyspace that gave the group away presents that :class:`Move` as proof: if the
balancer has not informed this keyspace yet, the proof makes it accept the group.
"""

import msgspec
from msgspec.structs import replace

from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, check_key
from service.clash.server_table import GroupState, Move, MoveKind, MoveStage, ServerTable, TableEntry
from service.errors import MoveRefused


def split(table: ServerTable, group: KeyGroup, keyspaces: KeyspaceMap) -> ServerTable:
    """Commit a split of the leaf ``group``: the left child stays in this keyspace, the right child moves to another.

    ``table`` is the table of this keyspace; the result is the table after the split. ``keyspaces`` maps groups to
    keyspaces. If the right child maps to this keyspace, it is split too, and so on (§V.A, last sentence). Raises
    :class:`MoveRefused` if the group is not a leaf with all its records, or if this keyspace has another move.
    """
    _check_idle(table, group)
    if table.state(group) is not GroupState.ACTIVE:
        raise MoveRefused(f"{group.label} cannot be split: it is {table.state(group) or 'not here'}.")
    changed: dict[KeyGroup, TableEntry | None] = {}
    parent = table.entries[group].parent
    child = table.keyspace
    while child == table.keyspace:
        if group.depth == table.bits:
            raise MoveRefused(f"{group.label} cannot be split: that needs a key of more than {table.bits} bits.")
        child = keyspaces.keyspace_of(group.right)
        changed[group] = TableEntry(GroupState.SPLIT, parent, child)
        changed[group.left] = TableEntry(GroupState.ACTIVE, table.keyspace)
        parent, group = table.keyspace, group.right
    return _begin_move(table.with_entries(changed), MoveKind.SPLIT, child, group, MoveStage.GIVING)


def accept_key_group(table: ServerTable, move: Move) -> ServerTable:
    """Return the new table of the right child's keyspace after it has accepted the right child of a split.

    ``table`` is the present table. This step (ACCEPT_KEYGROUP) precedes the arrival of records. A keyspace never
    refuses it (§V.A), and accepts each ``move`` once.
    """
    if move.number <= table.seen.get(move.keyspace, 0):
        return table
    arrived = TableEntry(GroupState.ARRIVING, parent=move.keyspace)
    seen = {**table.seen, move.keyspace: move.number}
    return replace(table.with_entries({move.group: arrived}), seen=seen)


def mark_emptied(table: ServerTable, move: Move) -> ServerTable:
    """Return the new table of the parent's keyspace after all records of the split ``move`` have left it.

    ``table`` is the present table. This step has to precede :func:`settle` in the right child's keyspace. After
    :func:`settle`, the right child may be split again, and a part of it may be moved to the parent's keyspace. This
    part must not be transferred back.
    """
    return replace(table, stage=MoveStage.EMPTIED) if _is_at(table, move, MoveStage.GIVING) else table


def settle(table: ServerTable, move: Move) -> ServerTable:
    """Return the new table of the right child's keyspace after all records of the split ``move`` have arrived.

    ``table`` is the present table. The right child is then a complete leaf, which may be split or merged.
    """
    if not is_taking(table, move):
        return table
    return table.with_entries({move.group: TableEntry(GroupState.ACTIVE, parent=move.keyspace)})


def merge(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Merge the halves of a group if both are in this keyspace; otherwise plan to take back its right child.

    ``table`` is the table of the group's keyspace; the result is the table after this step. A plan changes no group;
    the merge takes place when the right child's keyspace has returned the right child. Raises :class:`MoveRefused` if
    the halves are not leaves with all their records, or if this keyspace has another move.
    """
    _check_idle(table, group)
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.state(group.left) is not GroupState.ACTIVE:
        raise MoveRefused(f"{group.label} cannot be merged: its two halves are not leaves at rest.")
    if entry.right_child == table.keyspace:
        if table.state(group.right) is not GroupState.ACTIVE:
            raise MoveRefused(f"{group.label} cannot be merged: its right half is not a leaf at rest.")
        whole = TableEntry(GroupState.ACTIVE, entry.parent)
        return table.with_entries({group: whole, group.left: None, group.right: None})
    return _begin_move(table, MoveKind.MERGE, entry.right_child, group.right, MoveStage.PLANNED)


def give_key_group(table: ServerTable, move: Move) -> ServerTable:
    """Return the new table of the right child's keyspace after it has decided on the merge ``move``.

    ``table`` is the present table. The keyspace returns the right child to the parent's keyspace if it is a leaf with
    all its records. Otherwise the keyspace declines the merge. Each move is decided only once; :func:`is_giving`
    returns the decision.
    """
    if move.number <= table.seen.get(move.keyspace, 0):
        return table
    table = replace(table, seen={**table.seen, move.keyspace: move.number})
    if table.state(move.group) is not GroupState.ACTIVE:
        return table
    return table.with_entries({move.group: TableEntry(GroupState.LEAVING, parent=move.keyspace)})


def abandon(table: ServerTable, move: Move) -> ServerTable:
    """Return the new table of the parent's keyspace, without the planned merge ``move``, which was declined."""
    return replace(table, move=None, stage=None) if _is_at(table, move, MoveStage.PLANNED) else table


def take_back(table: ServerTable, move: Move) -> ServerTable:
    """Return the new table of the parent's keyspace after the right child of the merge ``move`` was returned.

    ``table`` is the present table. From now on, the keyspace accepts the keys of the whole group. The group is then a
    leaf, and its remaining records have yet to arrive.
    """
    if not _is_at(table, move, MoveStage.PLANNED):
        return table
    whole = move.leaf
    changed = {whole: TableEntry(GroupState.RETURNING, table.entries[whole].parent), whole.left: None}
    return replace(table.with_entries(changed), stage=MoveStage.TAKING)


def forget(table: ServerTable, move: Move) -> ServerTable:
    """Return the new table of the right child's keyspace, without the right child of the merge ``move``.

    All records of the right child have been fetched.
    """
    return table.with_entries({move.group: None}) if is_giving(table, move) else table


def finish(table: ServerTable, move: Move) -> ServerTable:
    """Return the new table of the parent's keyspace after the end of ``move``, when all records have arrived.

    ``table`` is the present table. If the move is a merge, the right child's keyspace has also removed the right child.
    """
    if table.move != move or table.stage is MoveStage.PLANNED:
        return table
    table = replace(table, move=None, stage=None)
    if move.kind is MoveKind.SPLIT:
        return table
    return table.with_entries({move.leaf: TableEntry(GroupState.ACTIVE, table.entries[move.leaf].parent)})


def is_giving(table: ServerTable, move: Move) -> bool:
    """Return whether the keyspace of this table is currently giving away the records of this move."""
    if move.kind is MoveKind.SPLIT:
        return _is_at(table, move, MoveStage.GIVING)
    return table.state(move.group) is GroupState.LEAVING and _is_latest(table, move)


def is_taking(table: ServerTable, move: Move) -> bool:
    """Return whether the keyspace of this table is currently receiving the records of this move."""
    if move.kind is MoveKind.MERGE:
        return _is_at(table, move, MoveStage.TAKING)
    return table.state(move.group) is GroupState.ARRIVING and _is_latest(table, move)


def _check_idle(table: ServerTable, group: KeyGroup) -> None:
    if table.move is not None:
        raise MoveRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")


def _begin_move(
    table: ServerTable, kind: MoveKind, child: Keyspace, right_child: KeyGroup, stage: MoveStage
) -> ServerTable:
    number = table.moves + 1
    move = Move(number, kind, table.keyspace, child, right_child)
    return replace(table, moves=number, move=move, stage=stage)


def _is_at(table: ServerTable, move: Move, stage: MoveStage) -> bool:
    """Return whether ``move`` is the current move in ``table`` and at this stage.

    ``table`` is the table of the parent's keyspace.
    """
    return table.move == move and table.stage is stage


def _is_latest(table: ServerTable, move: Move) -> bool:
    """Return whether ``move`` is the latest move of the parent's keyspace that the right child's keyspace knows.

    ``table`` is the table of the right child's keyspace.
    """
    return table.seen.get(move.keyspace) == move.number


NO_PREFIX_MATCH = -1
"""The prefix match that a keyspace without groups replies: the key's true depth is at least -1 + 1 = 0."""


class Accepted(msgspec.Struct, frozen=True):
    """Reply OK: the key is accepted by this keyspace, whether the guessed depth was right or not.

    ``group`` is the key's leaf group, and its depth is the key's true depth. While some of the leaf's records may still
    be in another keyspace, ``move`` is the move that brings them, and readers have to read that keyspace too. Otherwise
    ``move`` is None.
    """

    group: KeyGroup
    move: Move | None = None


class IncorrectDepth(msgspec.Struct, frozen=True):
    """Reply INCORRECT_DEPTH: the key is not accepted; its true depth is at least ``min_depth + 1`` (Theorem 1).

    While the key's group is moving to another keyspace, ``moved`` is this move, and that keyspace accepts the key.
    Otherwise ``moved`` is None.
    """

    min_depth: int
    moved: Move | None = None


AcceptObjectReply = Accepted | IncorrectDepth


def apply_proof(table: ServerTable, proof: Move | None) -> ServerTable:
    """Return the table in which this keyspace has accepted the group that a client's proof gives to it.

    The proof is the move by which another keyspace has given a group to this keyspace. The table does not change if the
    proof is None, outdated, or about a move to another keyspace.
    """
    if proof is None or proof.taker != table.keyspace:
        return table
    return accept_key_group(table, proof) if proof.kind is MoveKind.SPLIT else take_back(table, proof)


def accept_object(table: ServerTable, key: int) -> AcceptObjectReply:
    """Return the reply of the keyspace with this table to a client's request to accept ``key``.

    Raises :class:`BadKey` for a key of another length. Deviation from Figure 4: the client's guess is not an argument,
    because the reply does not depend on it.
    """
    check_key(key, table.bits)
    leaf = table.leaf(key)
    if leaf is not None:
        return Accepted(leaf, pending_move(table, leaf))
    known = [group for group, entry in table.entries.items() if entry.state is not GroupState.LEAVING]
    min_depth = max((group.common_bits(key) for group in known), default=NO_PREFIX_MATCH)
    return IncorrectDepth(min_depth, _departing_move(table, key))


def pending_move(table: ServerTable, leaf: KeyGroup) -> Move | None:
    """Return the move that still brings records into a leaf of this table; None if the leaf has all its records."""
    entry = table.entries[leaf]
    if entry.state is GroupState.RETURNING:
        return table.move
    if entry.state is GroupState.ARRIVING and entry.parent is not None:
        return Move(table.seen[entry.parent], MoveKind.SPLIT, entry.parent, table.keyspace, leaf)
    return None


def _departing_move(table: ServerTable, key: int) -> Move | None:
    """Return the move that is taking the key's group to another keyspace; None if there is none.

    Clients can be redirected to that keyspace at any time: the whole group is a leaf there, or becomes one when a
    client presents the move as a proof. The group cannot be split there before all its records have arrived.
    """
    if table.move is not None and key in table.move.group and is_giving(table, table.move):
        return table.move
    for group, entry in table.entries.items():
        if entry.state is GroupState.LEAVING and key in group and entry.parent is not None:
            return Move(table.seen[entry.parent], MoveKind.MERGE, entry.parent, table.keyspace, group)
    return None
