"""Matrices of cells: their sizes, and where in them a name lies (content discovery §IV.A).

The partition of a name, its *home*, follows from its *draw*, a number that belongs to the name: with P partitions it
is ``draw mod 2^k``, for the smallest 2^k that holds P, less its top bit where that is beyond P. That is linear hashing,
and just how the paper shrinks: partition p goes to p - 2^(k-1). So whatever size a matrix has had, a name is at one of
its few homes, and nobody has to remember where.

We deviate: the paper draws anew for each registration; a name that changes could then not be found to be replaced.
"""

import msgspec

Pair = str
"""The key of an AV-pair; opaque here."""


class Place(msgspec.Struct, frozen=True, order=True):
    """A rendezvous point, H(pair, p, r): the address of one cell. Partitions and replicas count from 0."""

    pair: Pair
    partition: int = 0
    replica: int = 0


class Size(msgspec.Struct, frozen=True, order=True):
    """How large a matrix was in one epoch; later epochs are newer."""

    epoch: int = 0
    partitions: int = 1
    replicas: int = 1


def head_of(pair: Pair) -> Place:
    """Return the cell that has a matrix's record, N(0,0)."""
    return Place(pair)


def heir(partition: int) -> int:
    """Return which partition gets the names of this one, not the first, when it is removed (§IV.C.2)."""
    return partition - (1 << partition.bit_length() - 1)


def home(draw: int, partitions: int) -> int:
    """Return where a name with this draw lies in a matrix of so many partitions."""
    place = draw % (1 << (partitions - 1).bit_length())
    return place if place < partitions else heir(place)


def homes(draw: int, partitions: int) -> tuple[int, ...]:
    """Return wherever a name with this draw can lie, whatever the matrix's sizes were until now; highest first."""
    found = [home(draw, partitions)]
    while found[-1]:
        found.append(heir(found[-1]))
    return tuple(found)


def probed(pair: Pair, partitions: int, replicas: int) -> tuple[Place, ...]:
    """Return which cells to ask for the size when the head does not know it, given the largest size (§IV.B.1).

    Cells are numbered without gaps, and each knows the whole size: where there is more than the head, one of these is.
    """
    down = (Place(pair, 1 << bit) for bit in range((partitions - 1).bit_length()))
    across = (Place(pair, 0, 1 << bit) for bit in range((replicas - 1).bit_length()))
    return (*down, *across)
