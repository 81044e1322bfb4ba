"""Which step follows which. The machine has no state: it is all in the tables, so any keeper can go on.

    split   SplitGroup* ─ AcceptKeyGroup ─ Fetch ⇄ Put ─ Settle ─ Finish
    merge   MergeGroup ─ GiveKeyGroup* ─ TakeBack ─ Fetch ⇄ Put ─ Forget ─ Finish
    recall  RecallGroup ┘     └ declined: Abandon

``*`` is the commit: before it the donor accepts, after it the taker, which a client's proof makes it if the keeper does
not come. A successor looks into its keyspace's table, begins with :func:`resumed` and, whatever had been done already,
does it once more to no effect.
"""

from service.clash.steps import (
    Abandon,
    AcceptKeyGroup,
    Begun,
    Decided,
    Fetch,
    Fetched,
    Finish,
    First,
    Forget,
    GiveKeyGroup,
    Kept,
    Outcome,
    Put,
    Settle,
    Step,
    TakeBack,
)
from service.clash.table import Kind, Move, ServerTable, Stage


def resumed(table: ServerTable) -> Step | None:
    """Return the step with which the move that is under way in a keyspace goes on."""
    if table.move is None:
        return None
    return Fetch(table.move) if table.stage is Stage.TAKING else _first(table.move)


def following(step: Step, outcome: Outcome) -> Step | None:
    """Return the step after this one; None if the move is over, or in other hands."""
    match outcome:
        case Begun(move=move):
            return None if move is None else _first(move)
        case Decided(given=given) if isinstance(step, GiveKeyGroup):
            return TakeBack(step.move) if given else Abandon(step.move)
        case Kept(taking=taking) if isinstance(step, Put):
            return Fetch(step.move, step.records) if taking else None
        case Fetched(records=records) if isinstance(step, Fetch):
            return Put(step.move, records) if records else _all_there(step.move)
    after = _AFTER.get(type(step))
    return None if after is None or isinstance(step, First) else after(step.move)


_AFTER: dict[type, type[Fetch | Finish]] = {AcceptKeyGroup: Fetch, TakeBack: Fetch, Settle: Finish, Forget: Finish}


def _first(move: Move) -> Step:
    return AcceptKeyGroup(move) if move.kind is Kind.SPLIT else GiveKeyGroup(move)


def _all_there(move: Move) -> Step:
    return Settle(move) if move.kind is Kind.SPLIT else Forget(move)
