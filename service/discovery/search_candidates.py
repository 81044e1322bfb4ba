"""What a directory is asked for, and its answer: clauses of weighted AV-pairs, and the names that satisfy all of them.

A query for words and attributes is a conjunction of *clauses*. A clause is a disjunction of *alternatives*: AV-pairs
that stand for the same word, such as stems in several languages or words with one letter changed. Each has a *factor*
in (0, 1], which says how well it stands for what the person wrote.

A name scores, for each clause, the best of its alternatives: inverse document frequency * factor * weight. The weight
(1-255) is that of the pair in the name, as it was registered. The name's score is the sum over all clauses.
"""

from collections.abc import Iterable, Mapping

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.matrix import MatrixSize

MAX_WEIGHT = 255
"""The greatest weight of a pair in a name; the least is 1."""


class WeightedPair(msgspec.Struct, frozen=True):
    """An alternative of a clause; ``factor`` in (0, 1] states how well the pair stands for what was asked."""

    pair: Pair
    factor: float = 1.0


class Clause(msgspec.Struct, frozen=True):
    """A condition that a name satisfies if it has at least one of these pairs; there must be at least one.

    A name has to satisfy all clauses that are not optional, and one of those that are.
    """

    alternatives: tuple[WeightedPair, ...]
    is_optional: bool = False


class CandidateName(msgspec.Struct, frozen=True):
    """A name that satisfies the clauses.

    ``weights`` has, for each clause in order, factor * weight (up to 255) of the alternative that counts for the score,
    and ``pairs`` has that alternative's pair. The weight is 0 if the name does not satisfy an optional clause.
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
    """The answer of a directory: the candidates with the best scores, best first, and how they were found.

    ``total`` is the number of names found before the others were cut off. ``complete`` states whether ``total`` counts
    all names that satisfy the query; otherwise there may be more, because not all cells were read. ``frequencies`` has
    the document frequency of each AV-pair that was asked for: the approximate number of names that have it; 0 if none
    has. ``queried`` lists the matrices from which cells were read, and ``elapsed_s`` is the duration in seconds.
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
