"""Moves of key groups, carried through on the store: by a keeper, or by an admin who does not wait for one."""

from collections.abc import AsyncIterator

from service.clash.steps import Begun, Finish, MergeGroup, Outcome, Step, following
from service.store.keyspaces import KeyspaceStore


async def carried_out(keyspaces: KeyspaceStore, first: Step) -> AsyncIterator[tuple[Step, Outcome]]:
    """Carry out a step and all that follow, and yield each with what came of it.

    Whoever stops in between leaves a move that goes on with :func:`service.clash.steps.resumed`. Raises
    :class:`service.errors.StepRefused`, :class:`service.errors.StoreUnavailable`, and what the tables raise.
    """
    step: Step | None = first
    while step is not None:
        outcome = await keyspaces.carry_out(step)
        yield step, outcome
        step = following(step, outcome)


def completed(step: Step, outcome: Outcome) -> str | None:
    """Return what is complete with this step: ``split`` or ``merge``."""
    match step:
        case Finish(move=move):
            return move.kind.value
        case MergeGroup() if outcome == Begun(None):
            return "merge"
    return None
