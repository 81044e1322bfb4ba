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

from service.discovery.matrix import Load, Matrix, Pair, Place, Size


class Standing(StrEnum):
    """Of a cell in its matrix."""

    OPEN = "open"
    """Has all names of its partition."""
    FILLING = "filling"
    """Takes names, but may not have all yet: other replicas are to be asked."""
    CLOSED = "closed"
    """Removed, or about to be: takes only newer records of what it has; its other replicas, or the heir, know more."""


class Membership(msgspec.Struct, frozen=True):
    """How a cell stands in its matrix, and the size that it was told."""

    standing: Standing
    size: Size


class Record(msgspec.Struct, frozen=True):
    """A name as it lies in a cell. One without pairs is *withdrawn*: it matches nothing, and outlives what it replaces.

    ``version`` grows with each change of a name; ``expires_ms`` is on the fleet's wall clock, and never earlier than
    that of an older version.
    """

    name: str
    version: int
    pairs: frozenset[Pair]
    expires_ms: int

    def withdrawn(self) -> "Record":
        """Return what takes the place of older versions where the name does not lie any more."""
        return msgspec.structs.replace(self, pairs=frozenset())


class Match(msgspec.Struct, frozen=True):
    """A name that has all pairs of a query, and the version that has them."""

    name: str
    version: int


class Look(msgspec.Struct, frozen=True):
    """Tell membership, load, and the matrix's record."""

    place: Place


class Sweep(msgspec.Struct, frozen=True):
    """Tell what :class:`Look` tells, after names that have expired were forgotten, which are counted until then."""

    place: Place


class Put(msgspec.Struct, frozen=True):
    """Keep the newer of each of these records and what is there; done if they, or newer ones, are all there now.

    An open or filling cell keeps them all, a closed one those whose names it has, an absent one none. ``only_over``
    says that the names are at home elsewhere: of one that is not there, or withdrawn, the withdrawn form is kept.
    Who ``believes`` in a size took this partition for the names' home by it: a cell that knows of more partitions,
    since then, keeps those alone that it has, not withdrawn. What says neither is copied from other cells: it is no
    registration.
    """

    place: Place
    records: tuple[Record, ...]
    only_over: bool = False
    believes: Size | None = None


class Find(msgspec.Struct, frozen=True):
    """Return at most so many names that have all these pairs, and are not expired; not done if absent."""

    place: Place
    pairs: frozenset[Pair]
    limit: int


class Tell(msgspec.Struct, frozen=True):
    """Make a newer size known to an open or filling cell; done if it knows that or a newer one."""

    place: Place
    size: Size


class Open(msgspec.Struct, frozen=True):
    """Make a cell that is absent, or was closed in an earlier epoch, a filling one, with what it has."""

    place: Place
    size: Size


class Ready(msgspec.Struct, frozen=True):
    """A cell that is filling since this very epoch has all now: open it."""

    place: Place
    epoch: int


class Close(msgspec.Struct, frozen=True):
    """Close an open or filling cell of an earlier epoch; without ``keep`` forget its records."""

    place: Place
    size: Size
    keep: bool


class Fetch(msgspec.Struct, frozen=True):
    """Return at most so many records, withdrawn ones too, those with the first names after this one."""

    place: Place
    after: str
    count: int


class Drop(msgspec.Struct, frozen=True):
    """In a closed cell, forget those records that are still exactly these."""

    place: Place
    records: tuple[Record, ...]


class Lead(msgspec.Struct, frozen=True):
    """At (0,0): replace the matrix's record, if it is still ``before``; None: if there is none.

    Where that makes an absent cell one, it has this standing, and the record's size. Done if the record is ``after``
    now; the answer has the record in any case.
    """

    place: Place
    before: Matrix | None
    after: Matrix
    standing: Standing = Standing.OPEN


Command = Look | Sweep | Put | Find | Tell | Open | Ready | Close | Fetch | Drop | Lead


class Answer(msgspec.Struct, frozen=True):
    """What a cell says after any command: how it stands now, and what was asked for."""

    member: Membership | None
    """None: it is absent."""
    matrix: Matrix | None = None
    """Only the head's, after :class:`Look`, :class:`Sweep` and :class:`Lead`."""
    load: Load = Load()
    done: bool = True
    matches: tuple[Match, ...] = ()
    records: tuple[Record, ...] = ()

    def stands(self, *standings: Standing) -> bool:
        """Return whether the cell is one of these."""
        return self.member is not None and self.member.standing in standings


def newer(one: Record, other: Record) -> Record:
    """Return which of two records of a name is to be kept: it is the same whichever came first."""
    return max(one, other, key=lambda record: (record.version, bool(record.pairs), record.expires_ms))


def put(held: Mapping[str, Record], command: Put, member: Membership | None) -> dict[str, Record]:
    """Return a cell's records that a :class:`Put` changes, given those it has; none where it refuses them."""
    if member is None:
        return {}
    changed = {}
    believes = command.believes or member.size
    more = member.size.epoch > believes.epoch and member.size.partitions > believes.partitions
    for record in command.records:
        before = held.get(record.name)
        if (before is None and member.standing is Standing.CLOSED) or (more and not (before and before.pairs)):
            continue
        arriving = record
        if command.only_over and (before is None or not before.pairs):
            arriving = record.withdrawn()
        changed[record.name] = arriving if before is None else newer(before, arriving)
    return changed


def transition(member: Membership | None, command: Command) -> Membership | None:
    """Return how a cell stands after a command; the very same where that changes nothing."""
    match command:
        case Tell(size=size) if member and member.standing is not Standing.CLOSED and member.size.epoch < size.epoch:
            return Membership(member.standing, size)
        case Open(size=size) if member is None or _reopens(member, size):
            return Membership(Standing.FILLING, size)
        case Ready(epoch=epoch) if member and member.standing is Standing.FILLING and member.size.epoch == epoch:
            return Membership(Standing.OPEN, member.size)
        case Close(size=size) if member and member.standing is not Standing.CLOSED and member.size.epoch < size.epoch:
            return Membership(Standing.CLOSED, size)
        case Lead(after=after, before=None, standing=standing) if member is None:
            return Membership(standing, after.size)
    return member


def _reopens(member: Membership, size: Size) -> bool:
    return member.standing is Standing.CLOSED and member.size.epoch < size.epoch
