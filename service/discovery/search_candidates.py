"""Requests to a directory and its answers: clauses of weighted AV-pairs, and the names that satisfy them.

A query for words and attributes is a conjunction of *clauses*. A clause is a disjunction of *alternatives*: AV-pairs
that stand for the same word, such as stems in several languages or words with one letter changed. Each alternative has
a *factor* in (0, 1], the degree to which it corresponds to the text of the query.

The score of a name is the sum over all clauses of importance * max(factor * weight). The maximum is over those
alternatives of the clause that the name has. The *weight* (1 to 255) states how well the pair describes the name; it is
stored when the name is registered. The *importance* of a clause is the inverse document frequency of its pairs.
"""

from collections.abc import Iterable, Mapping

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.matrix import MatrixSize

MAX_WEIGHT = 255
"""The greatest weight of a pair in a name; the least is 1."""


class WeightedPair(msgspec.Struct, frozen=True):
    """An alternative of a clause; ``factor`` in (0, 1] is the degree to which the pair corresponds to the query."""

    pair: Pair
    factor: float = 1.0


class Clause(msgspec.Struct, frozen=True):
    """A condition that a name satisfies if it has one of the AV-pairs in ``alternatives``, which is not empty.

    A name matches a query if it satisfies all clauses that are not optional, and at least one of the optional clauses.
    """

    alternatives: tuple[WeightedPair, ...]
    is_optional: bool = False


class CandidateName(msgspec.Struct, frozen=True):
    """A name that satisfies the clauses.

    ``weights`` has, for each clause in order, factor * weight (up to 255) of the alternative that counts for the score,
    and ``pairs`` the AV-pair of this alternative. The weight of an optional clause that the name does not satisfy is 0.
    """

    name: str
    score: float
    weights: tuple[float, ...]
    pairs: tuple[Pair, ...]


class QueriedMatrix(msgspec.Struct, frozen=True):
    """A matrix from which a query has read: its AV-pair, its size, and the number of its cells that were read."""

    pair: Pair
    size: MatrixSize
    cells: int


class Candidates(msgspec.Struct, frozen=True):
    """The answer of a directory: the names with the best scores, best first, and how they were found.

    ``found`` has these names. ``total`` is the number of names from which they were selected. ``complete`` states
    whether these are all names that satisfy the query; if it is false, there may be more, because not all cells were
    read. ``frequencies`` has the document frequency of each AV-pair of the query: the approximate number of names that
    have the pair. ``queried`` lists the matrices from which cells were read, and ``elapsed_s`` is the duration in
    seconds.
    """

    found: tuple[CandidateName, ...]
    total: int
    complete: bool
    frequencies: Mapping[Pair, int]
    queried: tuple[QueriedMatrix, ...]
    elapsed_s: float

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the candidates, best first."""
        return tuple(candidate.name for candidate in self.found)


def require_all(pairs: Iterable[Pair]) -> tuple[Clause, ...]:
    """Return the clauses of a query for names that have all of these pairs."""
    return tuple(Clause((WeightedPair(pair),)) for pair in dict.fromkeys(pairs))
