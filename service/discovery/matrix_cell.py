"""The commands that a cell of a matrix accepts, and their effects.

A matrix is a table of cells that stores the names (channels or entries) with one attribute-value pair. Each command is
atomic, because all of a cell's data is in one slot of Redis Cluster. Commands may be repeated, arrive late or be lost.

A cell stores the following data, which expires unless it is refreshed:

- *postings*: records of the names with the pair (:mod:`service.discovery.postings`)
- a *membership*: the cell's state, and the matrix's size as far as the cell knows
- only in the *head*, cell (0,0): the matrix's record (:class:`service.discovery.matrix.Matrix`)

A cell without a membership is *absent*: it never existed or was lost. The head is an exception: without a membership,
it counts as the open and only cell of its matrix. Most matrices have a single cell, and so need no memory for a record
and a membership.

All writes are merges. Of two postings of the same name, the one that expires later is kept. Of two sizes, the one with
the greater *epoch* (change number) is kept.

Every command is answered with a :class:`CellAnswer`. Its field ``done`` tells whether the command has succeeded, as
defined in the command's docstring.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from service.discovery.matrix import CellAddress, CellLoad, Matrix, MatrixSize, head_address
from service.discovery.postings import NameKey, Posting, unpack


class CellState(StrEnum):
    """The state of a cell in its matrix.

    - ``OPEN``: the cell has all names of its partition.
    - ``FILLING``: the cell accepts names, but may not have all names of its partition yet.
    - ``CLOSED``: the cell has been removed or is being removed.
    """

    OPEN = "open"
    """The cell has all names of its partition."""
    FILLING = "filling"
    """The cell accepts names but may lack some, so other replicas have to be read as well."""
    CLOSED = "closed"
    """The cell has been removed or is being removed.

    It accepts only newer postings of names that it has. Other cells have all names of its partition.
    """


class Membership(msgspec.Struct, frozen=True):
    """What a cell knows about its matrix: the cell's state, and the size of the matrix."""

    state: CellState
    size: MatrixSize


class ReadState(msgspec.Struct, frozen=True):
    """Command to read a cell's state and load, and the matrix's record if the cell stores it.

    If the cell has few postings (records of names), the answer also contains the postings.
    """

    place: CellAddress


class ReadPostings(msgspec.Struct, frozen=True):
    """Command to read the cell's state in its matrix, and its postings (records of names).

    If ``names`` is None, all postings are returned; otherwise at least the postings of these names.
    """

    place: CellAddress
    names: tuple[NameKey, ...] | None = None


class ExpireNames(msgspec.Struct, frozen=True):
    """Command to delete the cell's expired postings (records of names).

    Until they are deleted, expired postings count towards the cell's load. The answer has the same content as the
    answer to :class:`ReadState`.
    """

    place: CellAddress


class PutPostings(msgspec.Struct, frozen=True):
    """Command to store postings (records of names) in a cell.

    ``postings`` is packed (:func:`service.discovery.postings.pack`). The state of the cell determines what is
    stored:

    - An open or filling cell stores all postings.
    - A closed cell stores only postings of names that it already has.
    - An absent cell stores none, unless it is the head, cell (0,0).

    The command is done if the cell then has each of the postings, or a newer posting of the same name. Expired
    postings are ignored: they are not stored, and the command can be done without them.

    ``assumed_size`` is the matrix size from which the sender has computed the cell's address, or None if the
    postings are copied from another cell. A cell that knows a newer size with more partitions stores only
    postings of names that it already has.
    """

    place: CellAddress
    postings: bytes
    assumed_size: MatrixSize | None = None


class SetSize(msgspec.Struct, frozen=True):
    """Command to record the matrix's size in an open or filling cell.

    The command is done if the cell then stores this size or a newer one.
    """

    place: CellAddress
    size: MatrixSize


class OpenCell(msgspec.Struct, frozen=True):
    """Command to put an absent or closed cell into the state "filling", and to record the matrix's ``size`` in it.

    A closed cell is changed only if ``size`` has a greater epoch (change number) than the size stored in the cell. The
    cell keeps its postings (records of names).
    """

    place: CellAddress
    size: MatrixSize


class MarkFilled(msgspec.Struct, frozen=True):
    """Command to change a cell's state from "filling" to "open" once it has received all names of its partition.

    ``epoch`` is the epoch (change number) in which the cell was filled. The command has no effect if the size stored in
    the cell has a different epoch.
    """

    place: CellAddress
    epoch: int


class CloseCell(msgspec.Struct, frozen=True):
    """Command to close an open or filling cell, and to record the matrix's ``size`` in it.

    The command takes effect only if ``size`` has a greater epoch (change number) than the size stored in the cell. The
    cell's postings (records of names) are deleted unless ``keep`` is true.
    """

    place: CellAddress
    size: MatrixSize
    keep: bool


class FetchPostings(msgspec.Struct, frozen=True):
    """Command to read one page of the cell's postings (records of names), in ascending order of name keys.

    The page contains up to ``count`` postings, starting with the first name whose key is greater than ``after``.
    Records of withdrawn names are included.
    """

    place: CellAddress
    after: NameKey
    count: int


class DropPostings(msgspec.Struct, frozen=True):
    """Command to delete ``postings`` (packed records of names) from a closed cell.

    A posting that has been replaced since the caller read it is not deleted.
    """

    place: CellAddress
    postings: bytes


class UpdateMatrix(msgspec.Struct, frozen=True):
    """Command to the head, cell (0,0), to replace the matrix's record with ``after`` if it still equals ``before``.

    ``before`` is None if the sender has found no record. If the cell is absent, it is created with the state ``state``
    and the size in ``after``.

    The command is done if the record then equals ``after``. The answer always contains the record.
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
    """A cell's answer to a command.

    - ``member``: the cell's state, and the matrix size that the cell knows; None if the cell is absent.
    - ``matrix``: the matrix's record, if the cell stores it.
    - ``load``: the cell's load. It is set only in answers to commands that read the state.
    - ``done``: whether the command has succeeded.
    - ``postings``: packed records of names, in answers to :class:`ReadPostings` and :class:`FetchPostings`. Answers to
      :class:`ReadState` contain them if the cell has few. Otherwise None.
    """

    member: Membership | None
    """The cell's membership; None if the cell is absent."""
    matrix: Matrix | None = None
    """The matrix's record, in the head's answers to :class:`ReadState`, :class:`ExpireNames`, :class:`UpdateMatrix`."""
    load: CellLoad = CellLoad()
    done: bool = True
    postings: bytes | None = None

    def is_in(self, *states: CellState) -> bool:
        """Return whether the cell is in one of ``states``; False if the cell is absent."""
        return self.member is not None and self.member.state in states


def merge_postings(
    existing: Mapping[NameKey, Posting], command: PutPostings, member: Membership | None, now_s: float
) -> tuple[dict[NameKey, Posting], bool]:
    """Return (the postings to write, whether ``command`` is done) for a command to store postings in a cell.

    A posting is a cell's record of one name. The postings to write are returned as a dict from name to posting. The
    command is done if the cell then has each of the command's postings, or a newer posting of the same name.

    - ``existing``: the cell's stored postings, by name.
    - ``member``: the cell's membership, or None if the cell is absent.
    - ``now_s``: the Unix time in seconds.
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
    """Return a cell's membership after a command, or the same object if the command does not change it.

    A membership is the cell's state together with the matrix's size. None, as argument or result, means that the cell
    is absent.
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
