"""Transitions of tables: splits (CLASH §V.A), merges (§IV.A, bottom-up), and the answers to clients (§V.B, Figure 4).

Each function of a split or merge is one step, in one keyspace. ``split`` is the commit of a split. A merge is
committed by the child's ``give``; before it the plan only keeps the left child as it is. All steps but the first may be
repeated, and come late: then they change nothing. What is not possible raises :class:`MoveRefused` and changes nothing.

A *recall* is a merge of a group whose left child is split: the right child comes back, and stays a leaf of its own.

``AcceptObject`` is what a keyspace answers to a client that guessed a key's depth. Writes and reads ask alike. In the
store, answering and the write itself are one script, so that what is accepted is accepted by the leaf. A client that
was sent here by the keyspace that gave the group away brings that :class:`Move` as proof: where the keeper has not been
here yet, the proof itself makes this keyspace the taker.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from service.clash.key_groups import KeyGroup, Keyspace, Map, check_key
from service.clash.server_table import AT_REST, Entry, Kind, Move, ServerTable, Stage, Standing
from service.errors import MoveRefused


def takes(table: ServerTable, move: Move) -> bool:
    """Say whether this keyspace is taking the subscriptions of this very move now."""
    if move.kind is Kind.MERGE:
        return table.move == move and table.stage is Stage.TAKING
    return table.standing(move.group) is Standing.ARRIVING and _current(table, move)


def gives(table: ServerTable, move: Move) -> bool:
    """Say whether this keyspace is giving the subscriptions of this very move now."""
    if move.kind is Kind.SPLIT:
        return table.move == move and table.stage is Stage.GIVING
    return table.standing(move.group) is Standing.LEAVING and _current(table, move)


def finish(table: ServerTable, move: Move) -> ServerTable:
    """End a move in the keyspace that carries it out: all subscriptions have arrived, and the child is done with it."""
    own_move(table, move)
    if table.move != move or table.stage is Stage.PLANNED:
        return table
    table = replace(table, move=None, stage=None)
    if move.kind is Kind.SPLIT:
        return table
    leaf = arrives_in(table, move)
    standing = Standing.RECALLED if leaf == move.group else Standing.ACTIVE
    return table.with_entries({leaf: Entry(standing, table.entries[leaf].parent)})


def arrives_in(table: ServerTable, move: Move) -> KeyGroup:
    """Return the leaf of the taker, which has this table, that a move fills.

    A merge fills the whole group; one whose left child is split is a recall, and fills the right child alone. While
    the move is under way that does not change: the left child is in the same keyspace, which has this one move.
    """
    whole = move.group.parent
    merges = move.kind is Kind.MERGE and table.standing(whole.left) is not Standing.SPLIT
    return whole if merges else move.group


def own_move(table: ServerTable, move: Move) -> None:
    """Raise :class:`MoveRefused` if a step of this move has come to a keyspace that has no part in it."""
    if table.keyspace not in (move.keyspace, move.child):
        raise MoveRefused(f"Keyspace {table.keyspace} has no part in the {move.kind} of {move.group.label}.")


def _current(table: ServerTable, move: Move) -> bool:
    return table.seen.get(move.keyspace) == move.number


def split(table: ServerTable, group: KeyGroup, keyspaces: Map) -> ServerTable:
    """Commit a split: the left child stays, the right child's keyspace is told next.

    A right child that maps to this keyspace is split again, and so on (§V.A, last sentence). A recalled leaf is not
    parted: it goes to its own keyspace whole, as the right child that it is.
    Only a settled leaf can be split, and only while no other move is under way here.
    """
    if table.move is not None:
        raise MoveRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")
    if table.standing(group) not in AT_REST:
        raise MoveRefused(f"{group.label} cannot be split: it is {table.standing(group) or 'not here'}.")
    if table.standing(group) is Standing.RECALLED:
        child = keyspaces.keyspace_of(group)
        whole = Entry(Standing.SPLIT, table.entries[group.parent].parent, child)
        return _giving(table, {group.parent: whole, group: None}, child, group)
    changed: dict[KeyGroup, Entry | None] = {}
    parent = table.entries[group].parent
    child = table.keyspace
    while child == table.keyspace:
        if group.depth == table.bits:
            raise MoveRefused(f"{group.label} cannot be split: that needs a key of more than {table.bits} bits.")
        child = keyspaces.keyspace_of(group.right)
        changed[group] = Entry(Standing.SPLIT, parent, child)
        changed[group.left] = Entry(Standing.ACTIVE, table.keyspace)
        parent, group = table.keyspace, group.right
    return _giving(table, changed, child, group)


def _giving(
    table: ServerTable, changed: Mapping[KeyGroup, Entry | None], child: Keyspace, group: KeyGroup
) -> ServerTable:
    number = table.moves + 1
    move = Move(number, Kind.SPLIT, table.keyspace, child, group)
    return replace(table.with_entries(changed), moves=number, move=move, stage=Stage.GIVING)


def accept_key_group(table: ServerTable, move: Move) -> ServerTable:
    """In the child: accept the right child. A child never refuses (§V.A), and accepts each move once."""
    own_move(table, move)
    if move.number <= table.seen.get(move.keyspace, 0):
        return table
    arrived = Entry(Standing.ARRIVING, parent=move.keyspace)
    seen = {**table.seen, move.keyspace: move.number}
    return replace(table.with_entries({move.group: arrived}), seen=seen)


def emptied(table: ServerTable, move: Move) -> ServerTable:
    """In the keyspace that carries it out: a fetch has found nothing left, so it gives no more.

    This comes before the child settles: once that has, it may split the group, and a part of it may come back here.
    """
    return replace(table, stage=Stage.EMPTIED) if table.move == move and table.stage is Stage.GIVING else table


def settle(table: ServerTable, move: Move) -> ServerTable:
    """In the child: all subscriptions have arrived."""
    own_move(table, move)
    if not takes(table, move):
        return table
    return table.with_entries({move.group: Entry(Standing.ACTIVE, parent=move.keyspace)})


def merge(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Plan to take the right child of a split group back; if it is in this keyspace as well, take it at once."""
    _check_idle(table, group)
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.standing(group.left) is not Standing.ACTIVE:
        raise MoveRefused(f"{group.label} cannot be merged: its two halves are not leaves at rest.")
    if entry.right_child == table.keyspace:
        if table.standing(group.right) not in AT_REST:
            raise MoveRefused(f"{group.label} cannot be merged: its right half is not a leaf at rest.")
        whole = Entry(Standing.ACTIVE, entry.parent)
        return table.with_entries({group: whole, group.left: None, group.right: None})
    return _planning(table, group, entry.right_child)


def recall(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Plan to take the right child of a split group back, although its left child is split."""
    _check_idle(table, group)
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.standing(group.left) is not Standing.SPLIT:
        raise MoveRefused(f"{group.label} cannot recall its right half: its left half is not split.")
    if entry.right_child == table.keyspace:
        raise MoveRefused(f"{group.label} cannot recall its right half: that is in the same keyspace.")
    return _planning(table, group, entry.right_child)


def give(table: ServerTable, move: Move) -> ServerTable:
    """In the child: give the group back, if it is a leaf at rest; each move is decided once.

    :func:`given` says how.
    """
    own_move(table, move)
    if move.number <= table.seen.get(move.keyspace, 0):
        return table
    table = replace(table, seen={**table.seen, move.keyspace: move.number})
    if table.standing(move.group) is not Standing.ACTIVE:
        return table
    return table.with_entries({move.group: Entry(Standing.LEAVING, parent=move.keyspace)})


def given(table: ServerTable, move: Move) -> bool:
    """Say whether the child gave the group in this move, or else declined for good."""
    return table.standing(move.group) is Standing.LEAVING and table.seen.get(move.keyspace) == move.number


def abandon(table: ServerTable, move: Move) -> ServerTable:
    """In the keyspace that carries it out: the child declined."""
    own_move(table, move)
    return replace(table, move=None, stage=None) if _planned(table, move) else table


def take_back(table: ServerTable, move: Move) -> ServerTable:
    """In the keyspace that carries it out: the child gave the group, so the whole is a leaf again.

    After a recall, the right child is.
    """
    own_move(table, move)
    if not _planned(table, move):
        return table
    whole = move.group.parent
    parent = table.entries[whole].parent
    changed: dict[KeyGroup, Entry | None]
    if arrives_in(table, move) == whole:
        changed = {whole: Entry(Standing.RETURNING, parent), whole.left: None}
    else:
        changed = {
            whole: Entry(Standing.SPLIT, parent, table.keyspace),
            move.group: Entry(Standing.RETURNING, table.keyspace),
        }
    return replace(table.with_entries(changed), stage=Stage.TAKING)


def forget(table: ServerTable, move: Move) -> ServerTable:
    """In the child: nothing of the group is left here."""
    own_move(table, move)
    return table.with_entries({move.group: None}) if given(table, move) else table


def _check_idle(table: ServerTable, group: KeyGroup) -> None:
    if table.move is not None:
        raise MoveRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")


def _planning(table: ServerTable, group: KeyGroup, child: Keyspace) -> ServerTable:
    number = table.moves + 1
    move = Move(number, Kind.MERGE, table.keyspace, child, group.right)
    return replace(table, moves=number, move=move, stage=Stage.PLANNED)


def _planned(table: ServerTable, move: Move) -> bool:
    return table.move == move and table.stage is Stage.PLANNED


NO_ENTRY = -1
"""The prefix match of a table without entries: nothing is known, the true depth may be 0."""


class Accepted(msgspec.Struct, frozen=True):
    """OK, whether or not the guess was right: ``group`` is the key's leaf, and has its depth.

    ``move`` is set while some of the leaf's subscriptions may still be at its donor: who reads looks there as well.
    """

    group: KeyGroup
    move: Move | None = None


class IncorrectDepth(msgspec.Struct, frozen=True):
    """The key is not accepted here. The true depth is at least ``min_depth + 1`` (Theorem 1).

    ``moved`` is set while the key's group is moving from here: its taker has it.
    """

    min_depth: int
    moved: Move | None = None


Answer = Accepted | IncorrectDepth


def admit(table: ServerTable, proof: Move | None) -> ServerTable:
    """Return the table with what a client's proof says; an outdated or foreign proof says nothing."""
    if proof is None or proof.taker != table.keyspace:
        return table
    return accept_key_group(table, proof) if proof.kind is Kind.SPLIT else take_back(table, proof)


def answer(table: ServerTable, key: int) -> Answer:
    """Return the answer for a key; raises :class:`BadKey` for one of another length.

    We deviate from Figure 4 in not being told the client's guess: the answer does not depend on it.
    """
    check_key(key, table.bits)
    leaf = table.leaf(key)
    if leaf is not None:
        return Accepted(leaf, arriving(table, leaf))
    known = [group for group, entry in table.entries.items() if entry.standing is not Standing.LEAVING]
    min_depth = max((group.common_bits(key) for group in known), default=NO_ENTRY)
    return IncorrectDepth(min_depth, _given_away(table, key))


def arriving(table: ServerTable, leaf: KeyGroup) -> Move | None:
    """Return the move that still fills a leaf, if one does."""
    entry = table.entries[leaf]
    if entry.standing is Standing.RETURNING:
        return table.move
    if entry.standing is Standing.ARRIVING and entry.parent is not None:
        return Move(table.seen[entry.parent], Kind.SPLIT, entry.parent, table.keyspace, leaf)
    return None


def _given_away(table: ServerTable, key: int) -> Move | None:
    """Return the move that is taking the key's group from here.

    Its taker has the whole group as a leaf, or will when it sees the proof: it cannot split it before all has arrived.
    """
    if table.move is not None and key in table.move.group and gives(table, table.move):
        return table.move
    for group, entry in table.entries.items():
        if entry.standing is Standing.LEAVING and key in group and entry.parent is not None:
            return Move(table.seen[entry.parent], Kind.MERGE, entry.parent, table.keyspace, group)
    return None
