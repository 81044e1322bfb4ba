"""The steps of splits and merges, each one script in one keyspace's slot, and which step follows which.

    split   SplitGroup* ─ AcceptKeyGroup ─ Fetch ⇄ Put ─ Settle ─ Finish
    merge   MergeGroup ─ GiveKeyGroup* ─ TakeBack ─ Fetch ⇄ Put ─ Forget ─ Finish
    recall  RecallGroup ┘     └ declined: Abandon

``*`` is the commit: before it the donor accepts, after it the taker, which a client's proof makes it if the keeper does
not come. The machine has no state: it is all in the tables. A successor looks into its keyspace's table, begins with
:func:`resumed` and, whatever had been done already, does it once more to no effect.

A step may be done twice, or late, by a keeper that is not the keyspace's any more: it then changes nothing, because
it names the move that it belongs to, by number.
"""

from collections.abc import Callable

import msgspec

from service.clash import transitions
from service.clash.key_groups import KeyGroup, Keyspace, Map
from service.clash.prefix_query import Record
from service.clash.server_table import AT_REST, Kind, Move, ServerTable, Stage


class SplitGroup(msgspec.Struct, frozen=True):
    """Split a leaf of this keyspace, or send out a recalled one; answer with :class:`Begun`."""

    keyspace: Keyspace
    group: KeyGroup


class MergeGroup(msgspec.Struct, frozen=True):
    """Plan to merge the halves of a group of this keyspace; answer with :class:`Begun`."""

    keyspace: Keyspace
    group: KeyGroup


class RecallGroup(msgspec.Struct, frozen=True):
    """Plan to take back the right half of a group of this keyspace, whose left half is split; answer with `Begun`."""

    keyspace: Keyspace
    group: KeyGroup


class _OfMove(msgspec.Struct, frozen=True):
    move: Move


class AcceptKeyGroup(_OfMove, frozen=True):
    """In the child of a split: it has the right child now. Answer with :class:`Done`."""


class Settle(_OfMove, frozen=True):
    """In the child of a split: all has arrived; drop the tombstones. Answer with :class:`Done`."""


class GiveKeyGroup(_OfMove, frozen=True):
    """In the child of a merge: give the right child back, or decline. Answer with :class:`Decided`."""


class Abandon(_OfMove, frozen=True):
    """In the keyspace of a merge: the child declined. Answer with :class:`Done`."""


class TakeBack(_OfMove, frozen=True):
    """In the keyspace of a merge: it has the whole group now. Answer with :class:`Done`."""


class Forget(_OfMove, frozen=True):
    """In the child of a merge: nothing is left there. Answer with :class:`Done`."""


class Finish(_OfMove, frozen=True):
    """In the move's keyspace: it is over; drop the tombstones of a merge. Answer with :class:`Done`."""


class Fetch(msgspec.Struct, frozen=True):
    """In the donor, while it gives: drop these records, and answer with the first of the rest, :class:`Fetched`.

    If there are none, the same script says so in the table (:func:`service.clash.transitions.emptied`).
    """

    move: Move
    taken_over: tuple[Record, ...] = ()


class Put(msgspec.Struct, frozen=True):
    """In the taker, while it takes: keep the newer of each record and what is there. Answer with :class:`Kept`."""

    move: Move
    records: tuple[Record, ...]


OfMove = AcceptKeyGroup | Settle | GiveKeyGroup | Abandon | TakeBack | Forget | Finish
First = SplitGroup | MergeGroup | RecallGroup
"""With which moves begin."""
Step = First | OfMove | Fetch | Put


class Begun(msgspec.Struct, frozen=True):
    """The move that began; None if both halves are in one keyspace, and all is done."""

    move: Move | None


class Decided(msgspec.Struct, frozen=True):
    """Whether the child gave the group; in the same move it always says the same, until that is over."""

    given: bool


class Fetched(msgspec.Struct, frozen=True):
    """Records that the donor still has; none: that was all, or it does not give any more."""

    records: tuple[Record, ...]


class Kept(msgspec.Struct, frozen=True):
    """Whether the taker was still taking."""

    taking: bool


class Done(msgspec.Struct, frozen=True):
    """It is so now, or has been."""


Outcome = Begun | Decided | Fetched | Kept | Done


_TRANSITIONS: dict[type, Callable[[ServerTable, Move], ServerTable]] = {
    AcceptKeyGroup: transitions.accept_key_group,
    Settle: transitions.settle,
    GiveKeyGroup: transitions.give,
    Abandon: transitions.abandon,
    TakeBack: transitions.take_back,
    Forget: transitions.forget,
    Finish: transitions.finish,
}


def keyspace_of(step: Step) -> Keyspace:
    """Return where a step is carried out."""
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


def apply(table: ServerTable, step: Step, keyspaces: Map) -> ServerTable:
    """Return the table after a step; the very same where it changes nothing.

    Raises :class:`MoveRefused` where a split or merge is not possible, or the step is another keyspace's.
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


def filled(step: Step, after: ServerTable) -> KeyGroup | None:
    """Return the leaf that has all its subscriptions once this step has changed the table: its tombstones go with it.

    It is at rest in the table ``after`` the step, also if that had been done before.

    The end of a split fills nothing in the keyspace that gave: of another split, a part may be arriving there.
    """
    match step:
        case Settle(move=move):
            leaf = move.group
        case Finish(move=move) if move.kind is Kind.MERGE:
            leaf = transitions.arrives_in(after, move)
        case _:
            return None
    return leaf if after.standing(leaf) in AT_REST else None


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
