"""The steps of splits and merges, each one script in one keyspace's slot, and the order of the steps.

    split   SplitGroup* ─ AcceptKeyGroup ─ Fetch ⇄ Put ─ Settle ─ Finish
    merge   MergeGroup ─ GiveKeyGroup* ─ TakeBack ─ Fetch ⇄ Put ─ Forget ─ Finish
    recall  RecallGroup ┘     └ declined: Abandon

``*`` is the commit: before it the donor accepts keys, after it the taker, which becomes the taker by a client's proof
if the balancer fails to carry out the next step. The state of a move is entirely in the tables. After a failure, the
balancer's successor reads its keyspace's table, continues with :func:`resume_step`, and repeats steps without effect.

Each step names its move by number, so that it changes nothing when it is repeated, or arrives late from a balancer that
no longer serves the keyspace.
"""

from collections.abc import Callable

import msgspec

from service.clash import transitions
from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap
from service.clash.prefix_query import Record
from service.clash.server_table import SETTLED_STATES, Move, MoveKind, MoveStage, ServerTable


class SplitGroup(msgspec.Struct, frozen=True):
    """SPLIT: split a leaf of this keyspace, or send out a recalled one; answered by :class:`MoveStarted`."""

    keyspace: Keyspace
    group: KeyGroup


class MergeGroup(msgspec.Struct, frozen=True):
    """Plan to merge the halves of a group of this keyspace; answered by :class:`MoveStarted`."""

    keyspace: Keyspace
    group: KeyGroup


class RecallGroup(msgspec.Struct, frozen=True):
    """Plan to take back the right child of a group whose left child is split; answered by :class:`MoveStarted`."""

    keyspace: Keyspace
    group: KeyGroup


class _MoveStep(msgspec.Struct, frozen=True):
    move: Move


class AcceptKeyGroup(_MoveStep, frozen=True):
    """In the child of a split: accept the right child (ACCEPT_KEYGROUP). Answered by :class:`StepDone`."""


class Settle(_MoveStep, frozen=True):
    """In the child of a split, after the last record: mark the group as complete. Answered by :class:`StepDone`."""


class GiveKeyGroup(_MoveStep, frozen=True):
    """In the child of a merge: give the right child back, or decline. Answered by :class:`GiveResult`."""


class Abandon(_MoveStep, frozen=True):
    """In the parent's keyspace, after the child has declined: drop the merge. Answered by :class:`StepDone`."""


class TakeBack(_MoveStep, frozen=True):
    """In the parent's keyspace, after the child has given: accept the whole group. Answered by :class:`StepDone`."""


class Forget(_MoveStep, frozen=True):
    """In the child of a merge, after the last record: remove the group. Answered by :class:`StepDone`."""


class Finish(_MoveStep, frozen=True):
    """In the parent's keyspace: end the move, and drop the tombstones of a merge. Answered by :class:`StepDone`."""


class Fetch(msgspec.Struct, frozen=True):
    """In the donor, while it gives: delete the ``transferred`` records and return the next ones.

    The result is a :class:`FetchResult`. If no records are left, the same script records that in the table
    (:func:`service.clash.transitions.mark_emptied`).
    """

    move: Move
    transferred: tuple[Record, ...] = ()


class Put(msgspec.Struct, frozen=True):
    """In the taker, while it takes: store each record unless a newer one is present. Answered by :class:`PutResult`."""

    move: Move
    records: tuple[Record, ...]


MoveStep = AcceptKeyGroup | Settle | GiveKeyGroup | Abandon | TakeBack | Forget | Finish
InitialStep = SplitGroup | MergeGroup | RecallGroup
"""Steps that begin a move."""
Step = InitialStep | MoveStep | Fetch | Put


class MoveStarted(msgspec.Struct, frozen=True):
    """The move that has begun; None if both halves are in one keyspace, and the merge is complete."""

    move: Move | None


class GiveResult(msgspec.Struct, frozen=True):
    """Whether the child gave the group; repeated requests of the same move get the same result until the move ends."""

    given: bool


class FetchResult(msgspec.Struct, frozen=True):
    """Records that the donor still has; empty if it has none left, or does not give any more."""

    records: tuple[Record, ...]


class PutResult(msgspec.Struct, frozen=True):
    """Whether the taker was still taking."""

    taking: bool


class StepDone(msgspec.Struct, frozen=True):
    """The step has been carried out, now or earlier."""


Outcome = MoveStarted | GiveResult | FetchResult | PutResult | StepDone


_TRANSITIONS: dict[type, Callable[[ServerTable, Move], ServerTable]] = {
    AcceptKeyGroup: transitions.accept_key_group,
    Settle: transitions.settle,
    GiveKeyGroup: transitions.give_key_group,
    Abandon: transitions.abandon,
    TakeBack: transitions.take_back,
    Forget: transitions.forget,
    Finish: transitions.finish,
}


def keyspace_of(step: Step) -> Keyspace:
    """Return the keyspace in which a step is carried out."""
    match step:
        case SplitGroup() | MergeGroup() | RecallGroup():
            return step.keyspace
        case AcceptKeyGroup() | Settle() | GiveKeyGroup() | Forget():
            return step.move.child
        case Fetch():
            return step.move.donor
        case Put():
            return step.move.taker
        case _:
            return step.move.keyspace


def apply(table: ServerTable, step: Step, keyspaces: KeyspaceMap) -> ServerTable:
    """Return the table after a step; the same object if the step changes nothing.

    Raises :class:`MoveRefused` if a split or merge is not possible, or the step belongs to another keyspace.
    """
    match step:
        case SplitGroup():
            return transitions.split(table, step.group, keyspaces)
        case MergeGroup():
            return transitions.merge(table, step.group)
        case RecallGroup():
            return transitions.recall(table, step.group)
        case Fetch() | Put():
            return table
        case _:
            return _TRANSITIONS[type(step)](table, step.move)


def filled_leaf(step: Step, after: ServerTable) -> KeyGroup | None:
    """Return the leaf that is complete after this step, whose tombstones are to be dropped; None if there is none.

    The leaf is settled in the table ``after`` the step, also if the step is a repetition.

    The end of a split completes nothing in the keyspace that gave: a part of another split may be arriving there.
    """
    match step:
        case Settle(move=move):
            leaf = move.group
        case Finish(move=move) if move.kind is MoveKind.MERGE:
            leaf = transitions.target_leaf(after, move)
        case _:
            return None
    return leaf if after.state(leaf) in SETTLED_STATES else None


def resume_step(table: ServerTable) -> Step | None:
    """Return the step with which the current move of a keyspace continues; None if there is no move."""
    if table.move is None:
        return None
    return Fetch(table.move) if table.stage is MoveStage.TAKING else _first_step(table.move)


def next_step(step: Step, outcome: Outcome) -> Step | None:
    """Return the step that follows ``step`` after this outcome; None if the move is over, or superseded."""
    match outcome:
        case MoveStarted(move=move):
            return None if move is None else _first_step(move)
        case GiveResult(given=given) if isinstance(step, GiveKeyGroup):
            return TakeBack(step.move) if given else Abandon(step.move)
        case PutResult(taking=taking) if isinstance(step, Put):
            return Fetch(step.move, step.records) if taking else None
        case FetchResult(records=records) if isinstance(step, Fetch):
            return Put(step.move, records) if records else _after_transfer(step.move)
    after = _AFTER.get(type(step))
    return None if after is None or isinstance(step, InitialStep) else after(step.move)


_AFTER: dict[type, type[Fetch | Finish]] = {AcceptKeyGroup: Fetch, TakeBack: Fetch, Settle: Finish, Forget: Finish}


def _first_step(move: Move) -> Step:
    return AcceptKeyGroup(move) if move.kind is MoveKind.SPLIT else GiveKeyGroup(move)


def _after_transfer(move: Move) -> Step:
    return Settle(move) if move.kind is MoveKind.SPLIT else Forget(move)
