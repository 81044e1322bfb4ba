"""Requests to a directory and its answers: clauses of weighted AV-pairs, and the names that satisfy them.

A query for words and attributes is a conjunction of *clauses*. A clause is a disjunction of *alternatives*: AV-pairs
that stand for the same word, such as stems in several languages or words with one letter changed. These numbers rank
the names that satisfy a query:

- The *factor* of an alternative, in (0, 1], is the degree to which it corresponds to the text of the query.
- The *weight* of an AV-pair in a name (1 to 255) states how well the pair describes the name. It is stored when the
  name is registered.
- The *importance* of a clause is the inverse document frequency of its pairs.
- The *score* of a name is the sum over all clauses of importance * max(factor * weight). The maximum is over those
  alternatives of the clause that the name has.
"""

from collections.abc import Iterable, Mapping

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.matrix import MatrixSize

MAX_WEIGHT = 255
"""The greatest weight of an AV-pair in a name; the lowest is 1."""


class WeightedPair(msgspec.Struct, frozen=True):
    """One of a clause's alternatives: an AV-pair and its factor.

    ``factor``, in (0, 1], is the degree to which the pair corresponds to the text of the query.
    """

    pair: Pair
    factor: float = 1.0


class Clause(msgspec.Struct, frozen=True):
    """A condition that a name satisfies if it has one of the AV-pairs in ``alternatives``, which is not empty.

    A name matches a query if it satisfies all clauses that are not optional, and at least one of the optional clauses.
    """

    alternatives: tuple[WeightedPair, ...]
    is_optional: bool = False


class CandidateName(msgspec.Struct, frozen=True):
    """A name that satisfies the clauses of a query.

    ``pairs`` has, for each clause in order, the alternative of the name with the greatest factor * weight. ``weights``
    has these products, which are at most 255. The product is 0 for an optional clause that the name does not satisfy.
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

    - ``found`` has these names.
    - ``total`` is the number of names from which they were selected.
    - ``complete`` states whether these are all names that satisfy the query. If it is false, some cells were not read,
      and there may be more names.
    - ``frequencies`` has the document frequency of each AV-pair of the query: the approximate number of names that have
      the pair.
    - ``queried`` lists the matrices from which cells were read.
    - ``elapsed_s`` is the duration of the query in seconds.
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
