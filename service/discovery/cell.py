"""Commands of one cell of a matrix; each is atomic in the cell's slot of the store.

A cell has records of names with its pair, its *membership* (its state in its matrix and the size that it knows), and,
at (0,0), the matrix's record (:class:`service.discovery.matrix.Matrix`). All three are soft state and expire unless
they are refreshed. A cell without membership and records is *absent*: it never existed or was lost.

All writes are merges: the newer of two records stays, and only later epochs are accepted. Commands may therefore be
repeated, arrive late or never, and cells need no order among each other beyond that of the protocols.
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
    """A name in a cell. A record without pairs is *withdrawn*: it matches nothing and outlives what it replaces.

    ``version`` grows with each change of a name. ``expires_ms`` refers to the fleet's wall clock and is never earlier
    than that of an older version.
    """

    name: str
    version: int
    pairs: frozenset[PairKey]
    expires_ms: int

    def as_withdrawn(self) -> "NameRecord":
        """Return the record that replaces older versions where the name is no longer registered."""
        return msgspec.structs.replace(self, pairs=frozenset())


class Match(msgspec.Struct, frozen=True):
    """A name that has all pairs of a query, and its version."""

    name: str
    version: int


class ReadState(msgspec.Struct, frozen=True):
    """Return membership, load, and the matrix's record."""

    place: CellAddress


class ExpireNames(msgspec.Struct, frozen=True):
    """Return what :class:`ReadState` returns, after deleting expired names, which count as present until then."""

    place: CellAddress


class PutRecords(msgspec.Struct, frozen=True):
    """Merge these records into the cell; done if they, or newer ones, are all present afterwards.

    An open or filling cell stores all of them, a closed one those whose names it has, an absent one none. With
    ``replace_only``, the names are registered in another partition: of a name that is absent or withdrawn here, the
    withdrawn form is stored. ``assumed_size`` is the size from which the sender computed the partition: a cell that
    knows of more partitions since then stores only names that it has and that are not withdrawn. Without either, the
    records are copies from other cells, not registrations.
    """

    place: CellAddress
    records: tuple[NameRecord, ...]
    replace_only: bool = False
    assumed_size: MatrixSize | None = None


class FindNames(msgspec.Struct, frozen=True):
    """Return up to ``limit`` unexpired names that have all these pairs; not done if the cell is absent."""

    place: CellAddress
    pairs: frozenset[PairKey]
    limit: int


class SetSize(msgspec.Struct, frozen=True):
    """Set a newer size in an open or filling cell; done if the cell then knows this size or a newer one."""

    place: CellAddress
    size: MatrixSize


class OpenCell(msgspec.Struct, frozen=True):
    """Change a cell that is absent, or was closed in an earlier epoch, to filling; its records stay."""

    place: CellAddress
    size: MatrixSize


class MarkFilled(msgspec.Struct, frozen=True):
    """Open a cell that has been filling since exactly this epoch."""

    place: CellAddress
    epoch: int


class CloseCell(msgspec.Struct, frozen=True):
    """Close an open or filling cell of an earlier epoch; delete its records unless ``keep``."""

    place: CellAddress
    size: MatrixSize
    keep: bool


class FetchRecords(msgspec.Struct, frozen=True):
    """Return up to ``count`` records, including withdrawn ones, in the order of names after ``after``."""

    place: CellAddress
    after: str
    count: int


class DropRecords(msgspec.Struct, frozen=True):
    """In a closed cell, delete those of these records that are unchanged."""

    place: CellAddress
    records: tuple[NameRecord, ...]


class UpdateMatrix(msgspec.Struct, frozen=True):
    """At (0,0): replace the matrix's record if it is still ``before``; None if there is none.

    If the cell is absent, it is created in this state, with the record's size. Done if the record is ``after``
    afterwards; the answer contains the record in any case.
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
    """The answer of a cell to any command: its membership, and the command's results."""

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
    """Return the record of two that is to be stored; the result does not depend on their order."""
    return max(one, other, key=lambda record: (record.version, bool(record.pairs), record.expires_ms))


def merge_records(
    existing: Mapping[str, NameRecord], command: PutRecords, member: Membership | None
) -> dict[str, NameRecord]:
    """Return the records of a cell that a :class:`PutRecords` changes, given those it has."""
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
    """Return a cell's membership after a command; the same object if the command does not change it."""
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
