"""Commands of one cell of a matrix; each command is atomic in the cell's slot of Redis Cluster.

A cell belongs to the matrix of one AV-pair. It has records of content names that contain the pair, and its
*membership*: the cell's state in the matrix, and the matrix's size as the cell knows it. The cell (0,0) also has the
matrix's record (:class:`service.discovery.matrix.Matrix`). All three are soft state and expire unless they are
refreshed. A cell without membership and records is *absent*: it never existed or was lost.

All writes are merges: the newer of two records stays, and only later epochs are accepted. Commands may therefore be
repeated, arrive late or never arrive. The order of commands to different cells matters only where the protocols state
it.

The answer to every command is a :class:`CellAnswer`; a command is *done* or *not done* according to the answer's
``done``.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from service.discovery.matrix import CellAddress, CellLoad, Matrix, MatrixSize, PairKey


class CellState(StrEnum):
    """The state of a cell in its matrix."""

    OPEN = "open"
    """Has all names of its partition."""
    FILLING = "filling"
    """Accepts names but may lack some: other replicas have to be asked as well."""
    CLOSED = "closed"
    """Removed or about to be: accepts only newer records of names it has; other cells know more."""


class Membership(msgspec.Struct, frozen=True):
    """The state of a cell in its matrix, and the matrix's size as the cell knows it."""

    state: CellState
    size: MatrixSize


class NameRecord(msgspec.Struct, frozen=True):
    """A content name in a cell: its id ``name``, its ``version`` and its AV-pairs.

    ``version`` grows with each change of the name. A record without pairs is *withdrawn*: it matches no query, and is
    kept so that older versions of the name are not stored again. ``expires_ms`` is a Unix time in ms and never earlier
    than that of an older version.
    """

    name: str
    version: int
    pairs: frozenset[PairKey]
    expires_ms: int

    def as_withdrawn(self) -> "NameRecord":
        """Return the withdrawn form of this record, which matches no query and replaces older versions of the name.

        It is stored in cells in which the name is no longer registered.
        """
        return msgspec.structs.replace(self, pairs=frozenset())


class Match(msgspec.Struct, frozen=True):
    """A name that has all AV-pairs of a query, and the version of the name."""

    name: str
    version: int


class ReadState(msgspec.Struct, frozen=True):
    """Command to return the cell's membership, its load, and the matrix's record if the cell has it."""

    place: CellAddress


class ExpireNames(msgspec.Struct, frozen=True):
    """Command to delete the cell's expired names, and to return the same as :class:`ReadState`.

    Expired names count in the cell's load until they are deleted.
    """

    place: CellAddress


class PutRecords(msgspec.Struct, frozen=True):
    """Command to merge these records into the cell; done if all of them, or newer versions, are present afterwards.

    An open or filling cell stores all records. A closed cell stores only records of names that it already has, and an
    absent cell stores none.

    ``replace_only`` states that the names are registered in another partition. If a name is absent or withdrawn in this
    cell, only the withdrawn form of its record is stored.

    ``assumed_size`` is the matrix's size from which the sender has computed the partition. If the cell knows that the
    matrix has more partitions now, it stores only records of names that it has and has not withdrawn. None means,
    unless ``replace_only`` is true, that the records are copied from another cell, not registered.
    """

    place: CellAddress
    records: tuple[NameRecord, ...]
    replace_only: bool = False
    assumed_size: MatrixSize | None = None


class FindNames(msgspec.Struct, frozen=True):
    """Command to return up to ``limit`` unexpired names that have all of ``pairs``.

    An absent cell returns none, and the command is not done.
    """

    place: CellAddress
    pairs: frozenset[PairKey]
    limit: int


class SetSize(msgspec.Struct, frozen=True):
    """Command to record the matrix's size in an open or filling cell.

    Done if the cell then knows this size or a newer one.
    """

    place: CellAddress
    size: MatrixSize


class OpenCell(msgspec.Struct, frozen=True):
    """Command to change the state of a cell to filling, if it is absent or was closed before the epoch of ``size``.

    The cell keeps its records.
    """

    place: CellAddress
    size: MatrixSize


class MarkFilled(msgspec.Struct, frozen=True):
    """Command to change a filling cell to open, if the matrix's size that the cell knows has exactly this epoch."""

    place: CellAddress
    epoch: int


class CloseCell(msgspec.Struct, frozen=True):
    """Command to close an open or filling cell, if the matrix's size that it knows has an earlier epoch than ``size``.

    The cell's records are deleted unless ``keep`` is true.
    """

    place: CellAddress
    size: MatrixSize
    keep: bool


class FetchRecords(msgspec.Struct, frozen=True):
    """Command to return up to ``count`` records in the order of their names, including withdrawn records.

    The first of them has the next name after ``after``.
    """

    place: CellAddress
    after: str
    count: int


class DropRecords(msgspec.Struct, frozen=True):
    """Command to delete these records from a closed cell, except records that have changed since they were read."""

    place: CellAddress
    records: tuple[NameRecord, ...]


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
    | PutRecords
    | FindNames
    | SetSize
    | OpenCell
    | MarkFilled
    | CloseCell
    | FetchRecords
    | DropRecords
    | UpdateMatrix
)


class CellAnswer(msgspec.Struct, frozen=True):
    """The answer of a cell to a command: the cell's membership (None if it is absent), and the command's results.

    ``done`` states whether the command had its effect. ``load`` and ``matrix`` answer :class:`ReadState` and similar
    commands, ``matches`` answer :class:`FindNames`, and ``records`` answer :class:`FetchRecords`.
    """

    member: Membership | None
    """The cell's membership; None if it is absent."""
    matrix: Matrix | None = None
    """The head's record, only after :class:`ReadState`, :class:`ExpireNames` and :class:`UpdateMatrix`."""
    load: CellLoad = CellLoad()
    done: bool = True
    matches: tuple[Match, ...] = ()
    records: tuple[NameRecord, ...] = ()

    def is_in(self, *states: CellState) -> bool:
        """Return whether the cell is in one of these states."""
        return self.member is not None and self.member.state in states


def newer(one: NameRecord, other: NameRecord) -> NameRecord:
    """Return the newer of two records of the same name, which is the record to store.

    The result does not depend on the order of the arguments.
    """
    return max(one, other, key=lambda record: (record.version, bool(record.pairs), record.expires_ms))


def merge_records(
    existing: Mapping[str, NameRecord], command: PutRecords, member: Membership | None
) -> dict[str, NameRecord]:
    """Return the records to write, by name, when a cell executes a :class:`PutRecords`.

    ``existing`` are the cell's present records of these names, and ``member`` is the cell's membership; None if the
    cell is absent.
    """
    if member is None:
        return {}
    changed = {}
    assumed_size = command.assumed_size or member.size
    more = member.size.epoch > assumed_size.epoch and member.size.partitions > assumed_size.partitions
    for record in command.records:
        before = existing.get(record.name)
        if (before is None and member.state is CellState.CLOSED) or (more and not (before and before.pairs)):
            continue
        arriving = record
        if command.replace_only and (before is None or not before.pairs):
            arriving = record.as_withdrawn()
        changed[record.name] = arriving if before is None else newer(before, arriving)
    return changed


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
