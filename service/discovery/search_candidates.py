"""The types of requests to a search directory, and of its answers.

The directory stores names (channels or entries) and their AV-pairs (attribute and value). A query consists of
*clauses*. A name satisfies a clause if it has at least one of the clause's *alternatives*. These are AV-pairs that
stand for the same word, such as stems in several languages.

Names are ranked by these numbers:

- The *factor* of an alternative, in (0, 1], states how well the alternative fits the text of the query.
- The *weight* of an AV-pair in a name (1 to 255) states how well the AV-pair describes the name.
- The *importance* of a clause is the inverse document frequency of its AV-pairs.
- The *score* of a name is the sum of importance * (factor * weight) over all clauses. If the name has several
  alternatives of a clause, the one with the greatest factor * weight counts.
"""

from collections.abc import Iterable, Mapping

import msgspec

from service.discovery.av_pairs import Pair
from service.discovery.matrix import MatrixSize

MAX_WEIGHT = 255
"""The greatest weight of an AV-pair in a name; the lowest is 1."""


class WeightedPair(msgspec.Struct, frozen=True):
    """An attribute-value pair that is one of the alternatives of a query's clause.

    ``factor``, in (0, 1], states how well the pair fits the text of the query.
    """

    pair: Pair
    factor: float = 1.0


class Clause(msgspec.Struct, frozen=True):
    """A condition of a query, satisfied by names that have at least one of the pairs in ``alternatives``.

    ``alternatives`` contains at least one attribute-value pair. A name matches a query if it satisfies all clauses that
    are not optional, and at least one optional clause if there is any.
    """

    alternatives: tuple[WeightedPair, ...]
    is_optional: bool = False


class CandidateName(msgspec.Struct, frozen=True):
    """A name (channel or entry) that satisfies a query.

    - ``pairs``: for each clause, the attribute-value pair by which the name satisfies it. If there are several, this is
      the one with the greatest factor * weight. The factor states how well the pair fits the query, and the weight
      how well the pair describes the name.
    - ``weights``: for each clause, factor * weight of this pair, at most 255. The value is 0 if the name does not
      satisfy the clause; this is possible only for optional clauses.
    - ``coverage``: the sum of importance * factor over the optional clauses that the name satisfies. Results are sorted
      by this sum before any other criterion.
    """

    name: str
    score: float
    coverage: float
    weights: tuple[float, ...]
    pairs: tuple[Pair, ...]


class QueriedMatrix(msgspec.Struct, frozen=True):
    """A matrix (table of cells) from which a query has read.

    - ``pair``: the attribute-value pair of the matrix.
    - ``size``: the size of the matrix.
    - ``cells``: how many of its cells were read.
    """

    pair: Pair
    size: MatrixSize
    cells: int


class Candidates(msgspec.Struct, frozen=True):
    """A directory's answer to a query: the best names, and how they were found.

    - ``found``: the best names, best first.
    - ``total``: the number of names from which the best were selected.
    - ``complete``: whether all names that satisfy the query were considered; False if some cells were not read.
    - ``frequencies``: approximately how many names have each attribute-value pair of the query.
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
        """The names in ``found``, best first."""
        return tuple(candidate.name for candidate in self.found)


def require_all(pairs: Iterable[Pair]) -> tuple[Clause, ...]:
    """Return the clauses of a query for names that have all of the attribute-value pairs in ``pairs``."""
    return tuple(Clause((WeightedPair(pair),)) for pair in dict.fromkeys(pairs))
