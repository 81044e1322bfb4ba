"""Commands of one cell of a matrix; each command is atomic in the cell's slot of Redis Cluster.

A cell belongs to the matrix of one AV-pair. It stores:

- *postings* (:mod:`service.discovery.postings`), records of the names that have the pair
- a *membership*: the cell's state in the matrix, and the matrix's size as far as the cell knows
- only in the *head*, cell (0,0): the matrix's record (:class:`service.discovery.matrix.Matrix`)

All of this is soft state, which expires unless it is refreshed. A cell without membership is *absent*: it never existed
or was lost.

Most matrices have one cell with few names. To save memory, such a matrix has neither record nor membership. An absent
head therefore counts as an open cell that is the only one of its matrix, in epoch 0.

All writes are merges. Of two postings of a name, the one that expires later is kept. Changes of a matrix's size are
numbered by *epochs*; of two sizes, the one with the later epoch is kept. Commands may therefore be repeated, arrive
late or be lost. The order of commands to different cells matters only where the protocols state it.

The answer to every command is a :class:`CellAnswer`. Its field ``done`` states whether the command succeeded; the
docstring of each command defines this.
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

    If ``names`` is None, all postings are returned; otherwise at least those of these names.
    """

    place: CellAddress
    names: tuple[NameKey, ...] | None = None


class ExpireNames(msgspec.Struct, frozen=True):
    """Command to delete the cell's expired postings, and to return the same as :class:`ReadState`.

    Expired postings count in the cell's load until they are deleted.
    """

    place: CellAddress


class PutPostings(msgspec.Struct, frozen=True):
    """Command to merge ``postings`` (packed) into the cell.

    The command is done if the cell then has all of these postings, or valid newer ones of the same names. Which ones it
    stores depends on its state:

    - An open or filling cell stores all postings.
    - A closed cell stores only postings of names that it already has.
    - An absent cell stores none, unless it is the head.

    Expired postings are dropped, and count as stored.

    ``assumed_size`` is the matrix's size from which the sender has computed the partition. If the cell knows a newer
    size with more partitions, it stores only postings of names that it already has. ``assumed_size`` is None if the
    postings are copied from another cell.
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
    """Command to change an absent or closed cell to the state filling, and to record ``size`` in it.

    A closed cell is changed only if ``size`` has a later epoch (change number) than the size recorded in the cell. The
    cell keeps its postings.
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
    """Command to close an open or filling cell, and to record ``size`` in it.

    The command has no effect if the size recorded in the cell has the same epoch (change number) as ``size`` or a later
    one. The cell's postings are deleted unless ``keep`` is true.
    """

    place: CellAddress
    size: MatrixSize
    keep: bool


class FetchPostings(msgspec.Struct, frozen=True):
    """Command to return one page of the cell's postings, in ascending order of name keys, including withdrawals.

    The page has up to ``count`` postings, of names whose keys are greater than ``after``.
    """

    place: CellAddress
    after: NameKey
    count: int


class DropPostings(msgspec.Struct, frozen=True):
    """Command to delete ``postings`` (packed) from a closed cell.

    A posting that has been replaced since the caller read it is kept.
    """

    place: CellAddress
    postings: bytes


class UpdateMatrix(msgspec.Struct, frozen=True):
    """Command to the cell (0,0): replace the matrix's record by ``after`` if it still equals ``before``.

    ``before`` is None if there was no record. An absent cell is created in the state ``state``, with the size of
    ``after``. The command is done if the record equals ``after`` afterwards. The answer always contains the record.
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
    """The answer of a cell to a command.

    - ``member`` is the cell's membership, None if the cell is absent.
    - ``matrix`` is the head's record, and ``load`` is the cell's load. Only the commands that read the state return
      them.
    - ``done`` states whether the command had its effect.
    - ``postings`` are packed postings, or None. :class:`ReadPostings` and :class:`FetchPostings` return them, and
      :class:`ReadState` if the cell has few.
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
    """Return the effect of ``command`` in a cell: (the postings to write, by name; whether the command is done).

    The command is done if the cell then has all of the command's postings, or newer ones of the same names.
    ``existing`` has the cell's stored postings by name. ``member`` is the cell's membership, None if the cell is
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
