"""Transitions of server tables: splits (CLASH §V.A), merges (§IV.A, bottom-up), and AcceptObject (§V.B, Figure 4).

Each function is one step of a split or merge, in one keyspace. :func:`split` is the commit of a split. A merge is
committed by the child's :func:`give_key_group`; until then the plan only keeps the left child unchanged. All steps
except the first may be repeated or arrive late and then change nothing. An impossible step raises :class:`MoveRefused`
and changes nothing.

A *recall* is a merge of a group whose left child is split: the right child comes back and remains a leaf.

``AcceptObject`` is a keyspace's reply to a client that has guessed a key's depth, for reads and writes alike. In the
store, the reply and the write itself are one script, so that the leaf that accepts a record is the one that stores it.
A client that was redirected by the keyspace that gave the group away presents that :class:`Move` as proof: if the
balancer has not informed this keyspace yet, the proof makes it the taker.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, check_key
from service.clash.server_table import SETTLED_STATES, Entry, GroupState, Move, MoveKind, MoveStage, ServerTable
from service.errors import MoveRefused


def is_taking(table: ServerTable, move: Move) -> bool:
    """Return whether this keyspace is currently taking the records of this move."""
    if move.kind is MoveKind.MERGE:
        return table.move == move and table.stage is MoveStage.TAKING
    return table.state(move.group) is GroupState.ARRIVING and _is_current(table, move)


def is_giving(table: ServerTable, move: Move) -> bool:
    """Return whether this keyspace is currently giving the records of this move."""
    if move.kind is MoveKind.SPLIT:
        return table.move == move and table.stage is MoveStage.GIVING
    return table.state(move.group) is GroupState.LEAVING and _is_current(table, move)


def finish(table: ServerTable, move: Move) -> ServerTable:
    """End a move in the parent's keyspace: all records have arrived, and the child has completed its part."""
    check_involved(table, move)
    if table.move != move or table.stage is MoveStage.PLANNED:
        return table
    table = replace(table, move=None, stage=None)
    if move.kind is MoveKind.SPLIT:
        return table
    leaf = target_leaf(table, move)
    state = GroupState.RECALLED if leaf == move.group else GroupState.ACTIVE
    return table.with_entries({leaf: Entry(state, table.entries[leaf].parent)})


def target_leaf(table: ServerTable, move: Move) -> KeyGroup:
    """Return the leaf that a move fills in its taker, which has this table.

    A merge fills the whole group; a recall (the left child is split) fills the right child alone. This does not change
    during the move, because the left child is in the same keyspace, whose only move this is.
    """
    whole = move.group.parent
    merges = move.kind is MoveKind.MERGE and table.state(whole.left) is not GroupState.SPLIT
    return whole if merges else move.group


def check_involved(table: ServerTable, move: Move) -> None:
    """Raise :class:`MoveRefused` if this keyspace has no part in the move."""
    if table.keyspace not in (move.keyspace, move.child):
        raise MoveRefused(f"Keyspace {table.keyspace} has no part in the {move.kind} of {move.group.label}.")


def _is_current(table: ServerTable, move: Move) -> bool:
    return table.seen.get(move.keyspace) == move.number


def split(table: ServerTable, group: KeyGroup, keyspaces: KeyspaceMap) -> ServerTable:
    """Commit a split: the left child stays, the right child is given to its keyspace.

    If the right child maps to this keyspace, it is split again, and so on (§V.A, last sentence). A recalled leaf is not
    divided: it is given to its own keyspace whole. Only a settled leaf can be split, and only while this keyspace has
    no other move.
    """
    if table.move is not None:
        raise MoveRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")
    if table.state(group) not in SETTLED_STATES:
        raise MoveRefused(f"{group.label} cannot be split: it is {table.state(group) or 'not here'}.")
    if table.state(group) is GroupState.RECALLED:
        child = keyspaces.keyspace_of(group)
        whole = Entry(GroupState.SPLIT, table.entries[group.parent].parent, child)
        return _start_giving(table, {group.parent: whole, group: None}, child, group)
    changed: dict[KeyGroup, Entry | None] = {}
    parent = table.entries[group].parent
    child = table.keyspace
    while child == table.keyspace:
        if group.depth == table.bits:
            raise MoveRefused(f"{group.label} cannot be split: that needs a key of more than {table.bits} bits.")
        child = keyspaces.keyspace_of(group.right)
        changed[group] = Entry(GroupState.SPLIT, parent, child)
        changed[group.left] = Entry(GroupState.ACTIVE, table.keyspace)
        parent, group = table.keyspace, group.right
    return _start_giving(table, changed, child, group)


def _start_giving(
    table: ServerTable, changed: Mapping[KeyGroup, Entry | None], child: Keyspace, group: KeyGroup
) -> ServerTable:
    number = table.moves + 1
    move = Move(number, MoveKind.SPLIT, table.keyspace, child, group)
    return replace(table.with_entries(changed), moves=number, move=move, stage=MoveStage.GIVING)


def accept_key_group(table: ServerTable, move: Move) -> ServerTable:
    """Accept the right child of a split in its own keyspace (ACCEPT_KEYGROUP).

    A child never refuses (§V.A) and accepts each move once.
    """
    check_involved(table, move)
    if move.number <= table.seen.get(move.keyspace, 0):
        return table
    arrived = Entry(GroupState.ARRIVING, parent=move.keyspace)
    seen = {**table.seen, move.keyspace: move.number}
    return replace(table.with_entries({move.group: arrived}), seen=seen)


def mark_emptied(table: ServerTable, move: Move) -> ServerTable:
    """Record in the parent's keyspace that a split has no records left to give, so that it stops giving.

    This precedes the child's :func:`settle`: after that, the child may split the group, and a part of it may come back.
    """
    return replace(table, stage=MoveStage.EMPTIED) if table.move == move and table.stage is MoveStage.GIVING else table


def settle(table: ServerTable, move: Move) -> ServerTable:
    """Mark the right child of a split as complete in its own keyspace, because all records have arrived."""
    check_involved(table, move)
    if not is_taking(table, move):
        return table
    return table.with_entries({move.group: Entry(GroupState.ACTIVE, parent=move.keyspace)})


def merge(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Plan to take back the right child of a split group; if it is in this keyspace as well, merge at once."""
    _check_idle(table, group)
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.state(group.left) is not GroupState.ACTIVE:
        raise MoveRefused(f"{group.label} cannot be merged: its two halves are not leaves at rest.")
    if entry.right_child == table.keyspace:
        if table.state(group.right) not in SETTLED_STATES:
            raise MoveRefused(f"{group.label} cannot be merged: its right half is not a leaf at rest.")
        whole = Entry(GroupState.ACTIVE, entry.parent)
        return table.with_entries({group: whole, group.left: None, group.right: None})
    return _plan_merge(table, group, entry.right_child)


def recall(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Plan to take back the right child of a split group whose left child is split."""
    _check_idle(table, group)
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.state(group.left) is not GroupState.SPLIT:
        raise MoveRefused(f"{group.label} cannot recall its right half: its left half is not split.")
    if entry.right_child == table.keyspace:
        raise MoveRefused(f"{group.label} cannot recall its right half: that is in the same keyspace.")
    return _plan_merge(table, group, entry.right_child)


def give_key_group(table: ServerTable, move: Move) -> ServerTable:
    """Give the right child back to its parent's keyspace if it is a settled leaf, or decline.

    Each move is decided once; :func:`has_given` returns the decision.
    """
    check_involved(table, move)
    if move.number <= table.seen.get(move.keyspace, 0):
        return table
    table = replace(table, seen={**table.seen, move.keyspace: move.number})
    if table.state(move.group) is not GroupState.ACTIVE:
        return table
    return table.with_entries({move.group: Entry(GroupState.LEAVING, parent=move.keyspace)})


def has_given(table: ServerTable, move: Move) -> bool:
    """Return whether the child gave the group in this move; False if it has declined for good."""
    return table.state(move.group) is GroupState.LEAVING and table.seen.get(move.keyspace) == move.number


def abandon(table: ServerTable, move: Move) -> ServerTable:
    """Drop a planned merge in the parent's keyspace, because the child has declined."""
    check_involved(table, move)
    return replace(table, move=None, stage=None) if _is_planned(table, move) else table


def take_back(table: ServerTable, move: Move) -> ServerTable:
    """Make the whole group a leaf again in the parent's keyspace, because the child has given its half.

    After a recall, the right child is the leaf.
    """
    check_involved(table, move)
    if not _is_planned(table, move):
        return table
    whole = move.group.parent
    parent = table.entries[whole].parent
    changed: dict[KeyGroup, Entry | None]
    if target_leaf(table, move) == whole:
        changed = {whole: Entry(GroupState.RETURNING, parent), whole.left: None}
    else:
        changed = {
            whole: Entry(GroupState.SPLIT, parent, table.keyspace),
            move.group: Entry(GroupState.RETURNING, table.keyspace),
        }
    return replace(table.with_entries(changed), stage=MoveStage.TAKING)


def forget(table: ServerTable, move: Move) -> ServerTable:
    """Remove a given group from the child's table, because all of its records have been fetched."""
    check_involved(table, move)
    return table.with_entries({move.group: None}) if has_given(table, move) else table


def _check_idle(table: ServerTable, group: KeyGroup) -> None:
    if table.move is not None:
        raise MoveRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")


def _plan_merge(table: ServerTable, group: KeyGroup, child: Keyspace) -> ServerTable:
    number = table.moves + 1
    move = Move(number, MoveKind.MERGE, table.keyspace, child, group.right)
    return replace(table, moves=number, move=move, stage=MoveStage.PLANNED)


def _is_planned(table: ServerTable, move: Move) -> bool:
    return table.move == move and table.stage is MoveStage.PLANNED


NO_PREFIX_MATCH = -1
"""The prefix match of a table without entries: the true depth may be 0."""


class Accepted(msgspec.Struct, frozen=True):
    """OK, whether the guess was right or not: ``group`` is the key's leaf, whose depth is the true one.

    ``move`` is set while some of the leaf's records may still be at its donor: readers have to read there as well.
    """

    group: KeyGroup
    move: Move | None = None


class IncorrectDepth(msgspec.Struct, frozen=True):
    """INCORRECT_DEPTH: the key is not accepted here. The true depth is at least ``min_depth + 1`` (Theorem 1).

    ``moved`` is set while the key's group is moving from here: its taker has it.
    """

    min_depth: int
    moved: Move | None = None


AcceptObjectReply = Accepted | IncorrectDepth


def apply_proof(table: ServerTable, proof: Move | None) -> ServerTable:
    """Return the table with the change that a client's proof implies; an outdated or foreign proof changes nothing."""
    if proof is None or proof.taker != table.keyspace:
        return table
    return accept_key_group(table, proof) if proof.kind is MoveKind.SPLIT else take_back(table, proof)


def accept_object(table: ServerTable, key: int) -> AcceptObjectReply:
    """Return the reply for a key; raises :class:`BadKey` for a key of another length.

    Deviation from Figure 4: the client's guess is not an argument, because the reply does not depend on it.
    """
    check_key(key, table.bits)
    leaf = table.leaf(key)
    if leaf is not None:
        return Accepted(leaf, pending_move(table, leaf))
    known = [group for group, entry in table.entries.items() if entry.state is not GroupState.LEAVING]
    min_depth = max((group.common_bits(key) for group in known), default=NO_PREFIX_MATCH)
    return IncorrectDepth(min_depth, _departing_move(table, key))


def pending_move(table: ServerTable, leaf: KeyGroup) -> Move | None:
    """Return the move that is still filling a leaf, or None."""
    entry = table.entries[leaf]
    if entry.state is GroupState.RETURNING:
        return table.move
    if entry.state is GroupState.ARRIVING and entry.parent is not None:
        return Move(table.seen[entry.parent], MoveKind.SPLIT, entry.parent, table.keyspace, leaf)
    return None


def _departing_move(table: ServerTable, key: int) -> Move | None:
    """Return the move that is taking the key's group away, or None.

    Its taker has the whole group as a leaf, or will when it sees the proof: it cannot split it before all has arrived.
    """
    if table.move is not None and key in table.move.group and is_giving(table, table.move):
        return table.move
    for group, entry in table.entries.items():
        if entry.state is GroupState.LEAVING and key in group and entry.parent is not None:
            return Move(table.seen[entry.parent], MoveKind.MERGE, entry.parent, table.keyspace, group)
    return None
