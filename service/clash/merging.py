"""A merge as transitions of tables (CLASH §IV.A, bottom-up): each function is one step, in one keyspace.

The child's ``give`` is the commit. Before it the plan only keeps the left child as it is. All steps but the first may
be repeated, and come late: then they change nothing. What is not possible raises :class:`StepRefused`.

A *recall* is a merge of a group whose left child is split: the right child comes back, and stays a leaf of its own.
"""

from msgspec.structs import replace

from service.clash.groups import KeyGroup
from service.clash.mapping import Keyspace
from service.clash.moving import arrives_in, own_move
from service.clash.table import AT_REST, Entry, Kind, Move, ServerTable, Stage, Standing
from service.errors import StepRefused


def merge(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Plan to take the right child of a split group back; if it is in this keyspace as well, take it at once."""
    _check_idle(table, group)
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.standing(group.left) is not Standing.ACTIVE:
        raise StepRefused(f"{group.label} cannot be merged: its two halves are not leaves at rest.")
    if entry.right_child == table.keyspace:
        if table.standing(group.right) not in AT_REST:
            raise StepRefused(f"{group.label} cannot be merged: its right half is not a leaf at rest.")
        whole = Entry(Standing.ACTIVE, entry.parent)
        return table.with_entries({group: whole, group.left: None, group.right: None})
    return _planning(table, group, entry.right_child)


def recall(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Plan to take the right child of a split group back, although its left child is split."""
    _check_idle(table, group)
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.standing(group.left) is not Standing.SPLIT:
        raise StepRefused(f"{group.label} cannot recall its right half: its left half is not split.")
    if entry.right_child == table.keyspace:
        raise StepRefused(f"{group.label} cannot recall its right half: that is in the same keyspace.")
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
        raise StepRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")


def _planning(table: ServerTable, group: KeyGroup, child: Keyspace) -> ServerTable:
    number = table.moves + 1
    move = Move(number, Kind.MERGE, table.keyspace, child, group.right)
    return replace(table, moves=number, move=move, stage=Stage.PLANNED)


def _planned(table: ServerTable, move: Move) -> bool:
    return table.move == move and table.stage is Stage.PLANNED
