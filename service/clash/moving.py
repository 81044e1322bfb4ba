"""What both kinds of moves have in common: who takes, who gives, and the end."""

from msgspec.structs import replace

from service.clash.groups import KeyGroup
from service.clash.table import Entry, Kind, Move, ServerTable, Stage, Standing
from service.errors import StepRefused


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
    """Raise :class:`StepRefused` if a step of this move has come to a keyspace that has no part in it."""
    if table.keyspace not in (move.keyspace, move.child):
        raise StepRefused(f"Keyspace {table.keyspace} has no part in the {move.kind} of {move.group.label}.")


def _current(table: ServerTable, move: Move) -> bool:
    return table.seen.get(move.keyspace) == move.number
