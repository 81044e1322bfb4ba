"""What both kinds of moves have in common: who takes, who gives, and the end."""

from msgspec.structs import replace

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
    return table.with_entries({move.leaf: Entry(Standing.ACTIVE, table.entries[move.leaf].parent)})


def own_move(table: ServerTable, move: Move) -> None:
    """Raise :class:`StepRefused` if a step of this move has come to a keyspace that has no part in it."""
    if table.keyspace not in (move.keyspace, move.child):
        raise StepRefused(f"Keyspace {table.keyspace} has no part in the {move.kind} of {move.group.label}.")


def _current(table: ServerTable, move: Move) -> bool:
    return table.seen.get(move.keyspace) == move.number
