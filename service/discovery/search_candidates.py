"""Requests to a search directory and its answers.

The directory has the names (channels or entries) and their AV-pairs (attribute and value). A query consists of
*clauses*. A name satisfies a clause if it has one of the clause's *alternatives*: AV-pairs that stand for the same
word, such as stems in several languages.

These numbers rank the names:

- The *factor* of an alternative, in (0, 1], is how well it fits the text of the query.
- The *weight* of an AV-pair in a name (1 to 255) is how well it describes the name.
- The *importance* of a clause is the inverse document frequency of its AV-pairs.
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
    """One of the alternatives of a query's clause: an attribute-value pair and its factor.

    ``factor``, in (0, 1], is how well the pair fits the text of the query.
    """

    pair: Pair
    factor: float = 1.0


class Clause(msgspec.Struct, frozen=True):
    """A condition of a query: a name satisfies the condition if it has one of the pairs in ``alternatives``.

    ``alternatives`` are attribute-value pairs, at least one. A name matches a query if it satisfies all clauses that
    are not optional, and at least one of the optional clauses.
    """

    alternatives: tuple[WeightedPair, ...]
    is_optional: bool = False


class CandidateName(msgspec.Struct, frozen=True):
    """A name (channel or entry) that satisfies the clauses of a query.

    - ``pairs``: for each clause, one of the alternatives that the name has: the one whose factor * weight is greatest.
    - ``weights``: for each clause, this greatest factor * weight, at most 255. It is 0 for an optional clause that the
      name does not satisfy.
    """

    name: str
    score: float
    weights: tuple[float, ...]
    pairs: tuple[Pair, ...]


class QueriedMatrix(msgspec.Struct, frozen=True):
    """A matrix from which a query has read.

    It has the attribute-value pair of the matrix, its size, and the number of its cells that were read.
    """

    pair: Pair
    size: MatrixSize
    cells: int


class Candidates(msgspec.Struct, frozen=True):
    """The answer of a directory: the names with the best scores, and how they were found.

    - ``found``: these names, best first.
    - ``total``: the number of names from which the best were selected.
    - ``complete``: whether all names that satisfy the query were found. If false, some cells were not read.
    - ``frequencies``: the approximate number of names that have each attribute-value pair of the query.
    - ``queried``: the matrices (tables of cells) that were read.
    - ``elapsed_s``: the duration of the query in seconds.
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
    """Return the clauses of a query for names that have all of these attribute-value pairs."""
    return tuple(Clause((WeightedPair(pair),)) for pair in dict.fromkeys(pairs))
