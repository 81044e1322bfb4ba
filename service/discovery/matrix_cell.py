"""Commands of one cell of a matrix; each command is atomic in the cell's slot of Redis Cluster.

A cell belongs to the matrix of one AV-pair. It has postings (:mod:`service.discovery.postings`), records of the names
that have the pair. It also has a *membership*: the cell's state in the matrix, and the matrix's size as the cell knows
it. The *head*, cell (0,0), has the matrix's record (:class:`service.discovery.matrix.Matrix`), too. All three are soft
state and expire unless they are refreshed. A cell without membership is *absent*: it never existed or was lost.

Most matrices have one cell with few names. To save memory, such a matrix has neither record nor membership. An absent
head therefore counts as an open cell that is the only one of its matrix, in epoch 0.

All writes are merges. Of two postings of a name, the one that expires later stays. Changes of a matrix's size are
numbered by *epochs*; of two sizes, the one with the later epoch stays. Commands may therefore be repeated, arrive late
or never arrive. The order of commands to different cells matters only where the protocols state it.

The answer to every command is a :class:`CellAnswer`. Its ``done`` states whether the command is *done*, which each
command defines.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from service.discovery.matrix import CellAddress, CellLoad, Matrix, MatrixSize, head_address
from service.discovery.postings import NameKey, Posting, unpack


class CellState(StrEnum):
    """The state of a cell in its matrix."""

    OPEN = "open"
    """Has all names of its partition."""
    FILLING = "filling"
    """Accepts names but may lack some: other replicas have to be read as well."""
    CLOSED = "closed"
    """Removed or being removed: accepts only newer postings of names that it has; other cells have all names."""


class Membership(msgspec.Struct, frozen=True):
    """The state of a cell in its matrix, and the matrix's size that is recorded in the cell."""

    state: CellState
    size: MatrixSize


class ReadState(msgspec.Struct, frozen=True):
    """Command to return the cell's membership, its load, and the matrix's record if the cell has it.

    If the cell has few postings, they are returned as well.
    """

    place: CellAddress


class ReadPostings(msgspec.Struct, frozen=True):
    """Command to return the cell's membership and its postings.

    With ``names``, at least the postings of these names are returned; with None, all postings.
    """

    place: CellAddress
    names: tuple[NameKey, ...] | None = None


class ExpireNames(msgspec.Struct, frozen=True):
    """Command to delete the cell's expired postings, and to return the same as :class:`ReadState`.

    Expired postings count in the cell's load until they are deleted.
    """

    place: CellAddress


class PutPostings(msgspec.Struct, frozen=True):
    """Command to merge packed ``postings`` into the cell; done if all of them, or valid newer ones, are present.

    An open or filling cell stores all postings. A closed cell stores only postings of names that it already has. An
    absent cell stores none, unless it is the head. Expired postings are dropped, and count as stored.

    ``assumed_size`` is the matrix's size from which the sender has computed the partition. If the size recorded in the
    cell is newer and has more partitions, the cell stores only postings of names that it has. None means that the
    postings are copied from another cell, not registered.
    """

    place: CellAddress
    postings: bytes
    assumed_size: MatrixSize | None = None


class SetSize(msgspec.Struct, frozen=True):
    """Command to record the matrix's size in an open or filling cell.

    Done if this size or a newer one is recorded in the cell afterwards.
    """

    place: CellAddress
    size: MatrixSize


class OpenCell(msgspec.Struct, frozen=True):
    """Command to change the state of a cell to filling, if it is absent or was closed in an earlier epoch.

    The epoch of the closed cell, the number of its matrix's last change, is compared with that of ``size``. The cell
    keeps its postings and records ``size``.
    """

    place: CellAddress
    size: MatrixSize


class MarkFilled(msgspec.Struct, frozen=True):
    """Command to change a filling cell to open, because it has received all names of its partition.

    ``epoch`` is the number of the matrix's change for which the cell was filled. If the size recorded in the cell has
    another epoch, the command has no effect.
    """

    place: CellAddress
    epoch: int


class CloseCell(msgspec.Struct, frozen=True):
    """Command to close an open or filling cell, if the size recorded in it is older than ``size``.

    The older size is the one with the earlier epoch. The cell's postings are deleted unless ``keep`` is true.
    """

    place: CellAddress
    size: MatrixSize
    keep: bool


class FetchPostings(msgspec.Struct, frozen=True):
    """Command to return up to ``count`` postings in the order of their names' keys, including withdrawals.

    The first of them has the least key greater than ``after``.
    """

    place: CellAddress
    after: NameKey
    count: int


class DropPostings(msgspec.Struct, frozen=True):
    """Command to delete these packed postings from a closed cell, except those that have changed since."""

    place: CellAddress
    postings: bytes


class UpdateMatrix(msgspec.Struct, frozen=True):
    """Command to the cell (0,0): replace the matrix's record by ``after`` if it still equals ``before``.

    ``before`` is None if there was no record. If the cell is absent, it is created in the state ``state``, with the
    record's size. The command is done if the record equals ``after`` afterwards; the answer contains the record in any
    case.
    """

    place: CellAddress
    before: Matrix | None
    after: Matrix
    state: CellState = CellState.OPEN


Command = (
    ReadState
    | ExpireNames
    | ReadPostings
    | PutPostings
    | SetSize
    | OpenCell
    | MarkFilled
    | CloseCell
    | FetchPostings
    | DropPostings
    | UpdateMatrix
)


class CellAnswer(msgspec.Struct, frozen=True):
    """The answer of a cell to a command: the cell's membership (None if it is absent), and the command's results.

    ``done`` states whether the command had its effect. ``load`` and ``matrix`` answer :class:`ReadState` and similar
    commands. ``postings`` are packed; they answer :class:`ReadPostings`, :class:`FetchPostings` and, if the cell has
    few postings, :class:`ReadState`. Otherwise they are None.
    """

    member: Membership | None
    """The cell's membership; None if it is absent."""
    matrix: Matrix | None = None
    """The head's record, only after :class:`ReadState`, :class:`ExpireNames` and :class:`UpdateMatrix`."""
    load: CellLoad = CellLoad()
    done: bool = True
    postings: bytes | None = None

    def is_in(self, *states: CellState) -> bool:
        """Return whether the cell is in one of these states."""
        return self.member is not None and self.member.state in states


def merge_postings(
    existing: Mapping[NameKey, Posting], command: PutPostings, member: Membership | None, now_s: float
) -> tuple[dict[NameKey, Posting], bool]:
    """Return the effect of ``command`` in a cell: the postings to write, by name, and whether the command is done.

    The command is done if the cell then has all of the command's postings, or newer ones of the same names.
    ``existing`` are the cell's present postings by name. ``member`` is the cell's membership, None if the cell is
    absent. ``now_s`` is a Unix time in seconds.
    """
    if member is None and command.place != head_address(command.place.pair):
        return {}, False
    size = member.size if member is not None else MatrixSize()
    is_closed = member is not None and member.state is CellState.CLOSED
    assumed_size = command.assumed_size or size
    more = size.epoch > assumed_size.epoch and size.partitions > assumed_size.partitions
    changed: dict[NameKey, Posting] = {}
    done = True
    for posting in unpack(command.postings):
        before = existing.get(posting.name)
        if posting.expires_s <= now_s:
            continue
        if before is None and (is_closed or more):
            done = False
        elif before is None or posting.supersedes(before):
            changed[posting.name] = posting
    return changed, done


def transition(member: Membership | None, command: Command) -> Membership | None:
    """Return a cell's membership after a command; the same object if the command does not change the membership.

    A membership of None, as argument or result, means that the cell is absent.
    """
    match command:
        case SetSize(size=size) if member and member.state is not CellState.CLOSED and member.size.epoch < size.epoch:
            return Membership(member.state, size)
        case OpenCell(size=size) if member is None or _can_reopen(member, size):
            return Membership(CellState.FILLING, size)
        case MarkFilled(epoch=epoch) if member and member.state is CellState.FILLING and member.size.epoch == epoch:
            return Membership(CellState.OPEN, member.size)
        case CloseCell(size=size) if member and member.state is not CellState.CLOSED and member.size.epoch < size.epoch:
            return Membership(CellState.CLOSED, size)
        case UpdateMatrix(after=after, before=None, state=state) if member is None:
            return Membership(state, after.size)
    return member


def _can_reopen(member: Membership, size: MatrixSize) -> bool:
    return member.state is CellState.CLOSED and member.size.epoch < size.epoch
