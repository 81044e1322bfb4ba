"""A split as transitions of tables (CLASH §V.A): each function is one step, in one keyspace.

``split`` is the commit. All others may be repeated, and come late: then they change nothing. What is not possible
raises :class:`StepRefused` and changes nothing.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from service.clash.groups import KeyGroup
from service.clash.mapping import Keyspace, Map
from service.clash.moving import own_move, takes
from service.clash.table import AT_REST, Entry, Kind, Move, ServerTable, Stage, Standing
from service.errors import StepRefused


def split(table: ServerTable, group: KeyGroup, keyspaces: Map) -> ServerTable:
    """Commit a split: the left child stays, the right child's keyspace is told next.

    A right child that maps to this keyspace is split again, and so on (§V.A, last sentence). A recalled leaf is not
    parted: it goes to its own keyspace whole, as the right child that it is.
    Only a settled leaf can be split, and only while no other move is under way here.
    """
    if table.move is not None:
        raise StepRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")
    if table.standing(group) not in AT_REST:
        raise StepRefused(f"{group.label} cannot be split: it is {table.standing(group) or 'not here'}.")
    if table.standing(group) is Standing.RECALLED:
        child = keyspaces.keyspace_of(group)
        whole = Entry(Standing.SPLIT, table.entries[group.parent].parent, child)
        return _giving(table, {group.parent: whole, group: None}, child, group)
    changed: dict[KeyGroup, Entry | None] = {}
    parent = table.entries[group].parent
    child = table.keyspace
    while child == table.keyspace:
        if group.depth == table.bits:
            raise StepRefused(f"{group.label} cannot be split: that needs a key of more than {table.bits} bits.")
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
