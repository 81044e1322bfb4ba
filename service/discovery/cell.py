"""What one cell does: the commands of a store of cells, each of them atomic in its cell's slot.

A cell holds records of names that have its pair, its *membership* (how it stands in its matrix, and the size it was
told), and, at (0,0), the matrix's record (:class:`service.discovery.matrix.Matrix`). All three are soft state: what
nobody refreshes expires. A cell that has neither membership nor records *is absent*: it has never been, or is lost.

All that is written is a join: the newer of two records stays, and only later epochs are believed. So each command may
be repeated, come late, or never, and no order between cells is needed other than that of the dialogues.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from service.discovery.matrix import CellAddress, CellLoad, Matrix, MatrixSize, PairKey


class CellState(StrEnum):
    """Of a cell in its matrix."""

    OPEN = "open"
    """Has all names of its partition."""
    FILLING = "filling"
    """Takes names, but may not have all yet: other replicas are to be asked."""
    CLOSED = "closed"
    """Removed, or about to be: takes only newer records of what it has; its other replicas, or the heir, know more."""


class Membership(msgspec.Struct, frozen=True):
    """How a cell stands in its matrix, and the size that it was told."""

    standing: CellState
    size: MatrixSize


class NameRecord(msgspec.Struct, frozen=True):
    """A name as it lies in a cell. One without pairs is *withdrawn*: it matches nothing, and outlives what it replaces.

    ``version`` grows with each change of a name; ``expires_ms`` is on the fleet's wall clock, and never earlier than
    that of an older version.
    """

    name: str
    version: int
    pairs: frozenset[PairKey]
    expires_ms: int

    def withdrawn(self) -> "NameRecord":
        """Return what takes the place of older versions where the name does not lie any more."""
        return msgspec.structs.replace(self, pairs=frozenset())


class Match(msgspec.Struct, frozen=True):
    """A name that has all pairs of a query, and the version that has them."""

    name: str
    version: int


class ReadState(msgspec.Struct, frozen=True):
    """Tell membership, load, and the matrix's record."""

    place: CellAddress


class ExpireNames(msgspec.Struct, frozen=True):
    """Return what :class:`ReadState` returns, after deleting expired names, which count as present until then."""

    place: CellAddress


class PutRecords(msgspec.Struct, frozen=True):
    """Keep the newer of each of these records and what is there; done if they, or newer ones, are all there now.

    An open or filling cell keeps them all, a closed one those whose names it has, an absent one none. ``only_over``
    says that the names are at home elsewhere: of one that is not there, or withdrawn, the withdrawn form is kept.
    Who ``believes`` in a size took this partition for the names' home by it: a cell that knows of more partitions,
    since then, keeps those alone that it has, not withdrawn. What says neither is copied from other cells: it is no
    registration.
    """

    place: CellAddress
    records: tuple[NameRecord, ...]
    only_over: bool = False
    believes: MatrixSize | None = None


class FindNames(msgspec.Struct, frozen=True):
    """Return at most so many names that have all these pairs, and are not expired; not done if absent."""

    place: CellAddress
    pairs: frozenset[PairKey]
    limit: int


class SetSize(msgspec.Struct, frozen=True):
    """Make a newer size known to an open or filling cell; done if it knows that or a newer one."""

    place: CellAddress
    size: MatrixSize


class OpenCell(msgspec.Struct, frozen=True):
    """Make a cell that is absent, or was closed in an earlier epoch, a filling one, with what it has."""

    place: CellAddress
    size: MatrixSize


class MarkFilled(msgspec.Struct, frozen=True):
    """A cell that is filling since this very epoch has all now: open it."""

    place: CellAddress
    epoch: int


class CloseCell(msgspec.Struct, frozen=True):
    """Close an open or filling cell of an earlier epoch; without ``keep`` forget its records."""

    place: CellAddress
    size: MatrixSize
    keep: bool


class FetchRecords(msgspec.Struct, frozen=True):
    """Return at most so many records, withdrawn ones too, those with the first names after this one."""

    place: CellAddress
    after: str
    count: int


class DropRecords(msgspec.Struct, frozen=True):
    """In a closed cell, forget those records that are still exactly these."""

    place: CellAddress
    records: tuple[NameRecord, ...]


class UpdateMatrix(msgspec.Struct, frozen=True):
    """At (0,0): replace the matrix's record, if it is still ``before``; None: if there is none.

    Where that makes an absent cell one, it has this standing, and the record's size. Done if the record is ``after``
    now; the answer has the record in any case.
    """

    place: CellAddress
    before: Matrix | None
    after: Matrix
    standing: CellState = CellState.OPEN


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
    """What a cell says after any command: how it stands now, and what was asked for."""

    member: Membership | None
    """None: it is absent."""
    matrix: Matrix | None = None
    """Only the head's, after :class:`ReadState`, :class:`ExpireNames` and :class:`UpdateMatrix`."""
    load: CellLoad = CellLoad()
    done: bool = True
    matches: tuple[Match, ...] = ()
    records: tuple[NameRecord, ...] = ()

    def stands(self, *standings: CellState) -> bool:
        """Return whether the cell is one of these."""
        return self.member is not None and self.member.standing in standings


def newer(one: NameRecord, other: NameRecord) -> NameRecord:
    """Return which of two records of a name is to be kept: it is the same whichever came first."""
    return max(one, other, key=lambda record: (record.version, bool(record.pairs), record.expires_ms))


def merge_records(
    held: Mapping[str, NameRecord], command: PutRecords, member: Membership | None
) -> dict[str, NameRecord]:
    """Return a cell's records that a :class:`PutRecords` changes, given those it has; none where it refuses them."""
    if member is None:
        return {}
    changed = {}
    believes = command.believes or member.size
    more = member.size.epoch > believes.epoch and member.size.partitions > believes.partitions
    for record in command.records:
        before = held.get(record.name)
        if (before is None and member.standing is CellState.CLOSED) or (more and not (before and before.pairs)):
            continue
        arriving = record
        if command.only_over and (before is None or not before.pairs):
            arriving = record.withdrawn()
        changed[record.name] = arriving if before is None else newer(before, arriving)
    return changed


def transition(member: Membership | None, command: Command) -> Membership | None:
    """Return how a cell stands after a command; the very same where that changes nothing."""
    match command:
        case SetSize(size=size) if (
            member and member.standing is not CellState.CLOSED and member.size.epoch < size.epoch
        ):
            return Membership(member.standing, size)
        case OpenCell(size=size) if member is None or _can_reopen(member, size):
            return Membership(CellState.FILLING, size)
        case MarkFilled(epoch=epoch) if member and member.standing is CellState.FILLING and member.size.epoch == epoch:
            return Membership(CellState.OPEN, member.size)
        case CloseCell(size=size) if (
            member and member.standing is not CellState.CLOSED and member.size.epoch < size.epoch
        ):
            return Membership(CellState.CLOSED, size)
        case UpdateMatrix(after=after, before=None, standing=standing) if member is None:
            return Membership(standing, after.size)
    return member


def _can_reopen(member: Membership, size: MatrixSize) -> bool:
    return member.standing is CellState.CLOSED and member.size.epoch < size.epoch
