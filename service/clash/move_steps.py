"""The steps by which two keyspaces (partitions of the store) split or merge a group of keys, and their order.

    split   SplitGroup* ─ AcceptKeyGroup ─ Fetch ⇄ Put ─ Settle ─ Finish
    merge   MergeGroup ─ GiveKeyGroup* ─ TakeBack ─ Fetch ⇄ Put ─ Forget ─ Finish
                              └ declined: Abandon

Each step is one script in one keyspace. A split gives the right half of a group to another keyspace, and a merge takes
it back. The two keyspaces are named after their roles:

- The *parent's keyspace* has the undivided group. The *child* is the keyspace of the right half.
- The *donor* is the keyspace that gives records away. The *taker* is the keyspace that receives them.

``*`` marks the commit. Before the commit, the donor accepts the keys that move; after the commit, the taker does. The
balancer informs the taker of the commit with its next step. If the balancer fails before this step, a redirected client
informs the taker by presenting the move.

After a failure, the next balancer reads the keyspace's table, which contains the whole state of the move, and continues
with :func:`resume_step`. This may repeat a step. A step that is repeated, or that arrives late from a former balancer,
is recognised by the sequence number of its move and changes nothing.
"""

from collections.abc import Callable

import msgspec

from service.clash import table_transitions
from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap
from service.clash.prefix_query import Record
from service.clash.server_table import GroupState, Move, MoveKind, MoveStage, ServerTable


class _FirstStep(msgspec.Struct, frozen=True):
    keyspace: Keyspace
    group: KeyGroup


class SplitGroup(_FirstStep, frozen=True):
    """The first step of a split: divide the group into two halves.

    It is carried out in the group's keyspace, a partition of the store. The answer is :class:`MoveStarted`.
    """


class MergeGroup(_FirstStep, frozen=True):
    """The first step of a merge: plan to merge the two halves of a group.

    It is carried out in the keyspace of the undivided group. If both halves are already in this keyspace, they are
    merged at once. The answer is :class:`MoveStarted`.
    """


class _MoveStep(msgspec.Struct, frozen=True):
    move: Move


class AcceptKeyGroup(_MoveStep, frozen=True):
    """The step of a split in which the right half's new keyspace begins to accept the keys of the right half.

    The paper calls this step ACCEPT_KEYGROUP. The answer is :class:`StepDone`.
    """


class Settle(_MoveStep, frozen=True):
    """The step of a split in which the right half's new keyspace marks the right half as complete.

    It is carried out when all records of the right half have arrived. The answer is :class:`StepDone`.
    """


class GiveKeyGroup(_MoveStep, frozen=True):
    """The step of a merge in which the right half's keyspace gives up the right half, or declines to do so.

    A right half that has been given up belongs to the keyspace of the undivided group. Its records are moved later.
    The answer is :class:`GiveResult`.
    """


class Abandon(_MoveStep, frozen=True):
    """The step of a merge that cancels the planned merge, because the right half's keyspace has declined it.

    It is carried out in the keyspace that planned the merge. The answer is :class:`StepDone`.
    """


class TakeBack(_MoveStep, frozen=True):
    """The step of a merge in which the keyspace that planned the merge begins to accept all keys of the group.

    It is carried out when the right half's keyspace has given up the right half. The answer is :class:`StepDone`.
    """


class Forget(_MoveStep, frozen=True):
    """The step of a merge in which the right half's former keyspace removes the right half from its table.

    It is carried out when all records of the right half have been fetched. The answer is :class:`StepDone`.
    """


class Finish(_MoveStep, frozen=True):
    """The last step of a split or merge: end the move in the keyspace that began it.

    After a merge, this step also removes tombstones (records of deleted subscriptions). The answer is
    :class:`StepDone`.
    """


class Fetch(msgspec.Struct, frozen=True):
    """The step in which the *donor*, the keyspace that gives records away, returns the next records to move.

    ``transferred`` are the records from the answer to the previous Fetch. The receiving keyspace has stored them, so
    the donor deletes them. The answer is :class:`FetchedRecords`.
    """

    # If no records are left, the same script records this in the table (service.clash.table_transitions.mark_emptied).

    move: Move
    transferred: tuple[Record, ...] = ()


class Put(msgspec.Struct, frozen=True):
    """The step in which the receiving keyspace stores ``records``.

    Records of which the keyspace already has a newer version are left out. The answer is :class:`PutResult`.
    """

    move: Move
    records: tuple[Record, ...]


MoveStep = AcceptKeyGroup | Settle | GiveKeyGroup | Abandon | TakeBack | Forget | Finish
InitialStep = SplitGroup | MergeGroup
"""Steps that begin a move."""
Step = InitialStep | MoveStep | Fetch | Put


class MoveStarted(msgspec.Struct, frozen=True):
    """The answer to the first step of a split or merge; ``move`` is the move that has begun.

    ``move`` is None if the step has merged two halves in the same keyspace. Such a merge needs no further steps.
    """

    move: Move | None


class GiveResult(msgspec.Struct, frozen=True):
    """The answer to :class:`GiveKeyGroup`; ``given`` states whether the keyspace has given up the right half.

    If the step is repeated before the merge ends, the answer is the same.
    """

    given: bool


class FetchedRecords(msgspec.Struct, frozen=True):
    """The answer to :class:`Fetch`, with the next records to move.

    ``records`` is empty if none are left, or if the keyspace no longer gives away the records of this move.
    """

    records: tuple[Record, ...]


class PutResult(msgspec.Struct, frozen=True):
    """The answer to :class:`Put`; ``taking`` states whether the keyspace was still receiving records of this move."""

    taking: bool


class StepDone(msgspec.Struct, frozen=True):
    """The answer to a step that has no other result: the step has been carried out, either now or earlier."""


Outcome = MoveStarted | GiveResult | FetchedRecords | PutResult | StepDone


_TRANSITIONS: dict[type, Callable[[ServerTable, Move], ServerTable]] = {
    AcceptKeyGroup: table_transitions.accept_key_group,
    Settle: table_transitions.settle,
    GiveKeyGroup: table_transitions.give_key_group,
    Abandon: table_transitions.abandon,
    TakeBack: table_transitions.take_back,
    Forget: table_transitions.forget,
    Finish: table_transitions.finish,
}


def keyspace_of(step: Step) -> Keyspace:
    """Return the keyspace in which a step is carried out."""
    match step:
        case SplitGroup() | MergeGroup():
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
    """Return ``table`` as it is after ``step``; return ``table`` itself if the step changes nothing.

    ``table`` belongs to the keyspace in which the step is carried out; ``keyspaces`` maps groups to keyspaces. Raises
    :class:`MoveRefused` if a split or merge is impossible.
    """
    match step:
        case SplitGroup():
            return table_transitions.split(table, step.group, keyspaces)
        case MergeGroup():
            return table_transitions.merge(table, step.group)
        case Fetch() | Put():
            return table
        case _:
            return _TRANSITIONS[type(step)](table, step.move)


def filled_leaf(step: Step, after: ServerTable) -> KeyGroup | None:
    """Return the group that has all its records as a result of ``step``; None if the step does not complete a group.

    ``after`` is the table after the step. Tombstones (records of deleted subscriptions) are needed only while records
    of the group are missing. The caller may therefore delete the tombstones of the returned group. If the step is
    repeated, the result is the same.
    """
    # The last step of a split completes no leaf in the keyspace that gave the records away: records of another split
    # may still be arriving there.
    if isinstance(step, Settle) or (isinstance(step, Finish) and step.move.kind is MoveKind.MERGE):
        leaf = step.move.leaf
        return leaf if after.state(leaf) is GroupState.ACTIVE else None
    return None


def resume_step(table: ServerTable) -> Step | None:
    """Return the step with which to continue the move in ``table`` after a failure; None if there is no move."""
    if table.move is None:
        return None
    return Fetch(table.move) if table.stage is MoveStage.TAKING else _first_step(table.move)


def next_step(step: Step, outcome: Outcome) -> Step | None:
    """Return the step that follows ``step``, given that its answer was ``outcome``.

    The result is None if the move has ended, or if the answer shows that a later step has already been carried out.
    """
    match outcome:
        case MoveStarted(move=move):
            return None if move is None else _first_step(move)
        case GiveResult(given=given) if isinstance(step, GiveKeyGroup):
            return TakeBack(step.move) if given else Abandon(step.move)
        case PutResult(taking=taking) if isinstance(step, Put):
            return Fetch(step.move, step.records) if taking else None
        case FetchedRecords(records=records) if isinstance(step, Fetch):
            after_transfer = Settle if step.move.kind is MoveKind.SPLIT else Forget
            return Put(step.move, records) if records else after_transfer(step.move)
    after = _AFTER.get(type(step))
    return None if after is None or isinstance(step, InitialStep) else after(step.move)


_AFTER: dict[type, type[Fetch | Finish]] = {AcceptKeyGroup: Fetch, TakeBack: Fetch, Settle: Finish, Forget: Finish}


def _first_step(move: Move) -> Step:
    return AcceptKeyGroup(move) if move.kind is MoveKind.SPLIT else GiveKeyGroup(move)
