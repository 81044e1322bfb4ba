"""A directory in memory, with the answers of :class:`service.store.directory.matrix_directory.Directory`."""

from collections.abc import Collection, Mapping, Sequence

from service.discovery.av_pairs import Pair
from service.discovery.search_candidates import MAX_WEIGHT, CandidateName, Candidates, Clause
from service.discovery.text_search.ranking import clause_importance


class MemoryDirectory:
    """Content names and their weighted pairs."""

    def __init__(self, names: Mapping[str, Mapping[Pair, int]]) -> None:
        self._postings: dict[Pair, dict[str, int]] = {}
        for name, pairs in names.items():
            for pair, weight in pairs.items():
                self._postings.setdefault(pair, {})[name] = weight

    def find(self, clauses: Sequence[Clause], excluded: Collection[Pair], most: int) -> Candidates:
        frequencies = {
            each.pair: len(self._postings.get(each.pair, ())) for clause in clauses for each in clause.alternatives
        }
        matched: list[dict[str, tuple[float, Pair]]] = []
        for clause in clauses:
            best: dict[str, tuple[float, Pair]] = {}
            for each in clause.alternatives:
                for name, weight in self._postings.get(each.pair, {}).items():
                    if best.get(name, (0.0, ""))[0] < each.factor * weight:
                        best[name] = each.factor * weight, each.pair
            matched.append(best)
        names = set.intersection(*map(set, matched))
        names -= {name for pair in excluded for name in self._postings.get(pair, ())}
        importances = [clause_importance(clause, frequencies) for clause in clauses]
        found = []
        for name in names:
            weights, pairs = zip(*(best[name] for best in matched), strict=True)
            score = sum(one * weight / MAX_WEIGHT for one, weight in zip(importances, weights, strict=True))
            found.append(CandidateName(name, score, 0.0, weights, pairs))
        found.sort(key=lambda each: (-each.score, each.name))
        return Candidates(tuple(found[:most]), len(found), True, frequencies, (), 0.0)
