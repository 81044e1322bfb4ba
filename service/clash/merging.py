"""A merge as transitions of tables (CLASH §IV.A, bottom-up): each function is one step, in one keyspace.

The child's ``give`` is the commit. Before it the plan only keeps the left child as it is. All steps but the first may
be repeated, and come late: then they change nothing. What is not possible raises :class:`StepRefused`.
"""

from msgspec.structs import replace

from service.clash.groups import KeyGroup
from service.clash.moving import own_move
from service.clash.table import Entry, Kind, Move, ServerTable, Stage, Standing
from service.errors import StepRefused


def merge(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Plan to take the right child of a split group back; if it is in this keyspace as well, take it at once."""
    if table.move is not None:
        raise StepRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.standing(group.left) is not Standing.ACTIVE:
        raise StepRefused(f"{group.label} cannot be merged: its two halves are not leaves at rest.")
    if entry.right_child == table.keyspace:
        if table.standing(group.right) is not Standing.ACTIVE:
            raise StepRefused(f"{group.label} cannot be merged: its right half is not a leaf at rest.")
        whole = Entry(Standing.ACTIVE, entry.parent)
        return table.with_entries({group: whole, group.left: None, group.right: None})
    number = table.moves + 1
    move = Move(number, Kind.MERGE, table.keyspace, entry.right_child, group.right)
    return replace(table, moves=number, move=move, stage=Stage.PLANNED)


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
    """In the keyspace that carries it out: the child gave the group, so the whole is a leaf again."""
    own_move(table, move)
    if not _planned(table, move):
        return table
    entry = Entry(Standing.RETURNING, table.entries[move.leaf].parent)
    return replace(table.with_entries({move.leaf: entry, move.leaf.left: None}), stage=Stage.TAKING)


def forget(table: ServerTable, move: Move) -> ServerTable:
    """In the child: nothing of the group is left here."""
    own_move(table, move)
    return table.with_entries({move.group: None}) if given(table, move) else table


def _planned(table: ServerTable, move: Move) -> bool:
    return table.move == move and table.stage is Stage.PLANNED
