"""Measures of a search's quality: nDCG@10 of judged queries and MRR@10 of known-item queries, by kind.

nDCG is the discounted cumulative gain (Järvelin and Kekäläinen, 2002; gain 2^grade - 1, discount log2(rank + 1)),
divided by that of the best possible order. MRR is the mean of 1/rank of the right answer, 0 if it is not in the list.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from math import log2
from statistics import fmean
from typing import Final

from tests.support.search_quality.corpus import LANGUAGES, Document, round_ups, story_documents
from tests.support.search_quality.generated_entries import GENERATED, generated_documents
from tests.support.search_quality.judgements import ANY_LANGUAGE, Grader, JudgedQuery
from tests.support.search_quality.known_items import KnownItem

DEPTH: Final = 10

Search = Callable[[str, str, int], Awaitable[Sequence[str]]]
"""Function (query, language of the user or "", limit) that returns up to ``limit`` ids of entries, best first."""


def corpus_documents(generated: int = GENERATED) -> list[Document]:
    """Return the corpus, with this number of generated entries in each language."""
    parts = (
        chain(story_documents(language), round_ups(language), generated_documents(language, generated))
        for language in LANGUAGES
    )
    return list(chain.from_iterable(parts))


def ndcg(found: Sequence[str], grades: Mapping[str, int]) -> float:
    """Return nDCG of the first ``DEPTH`` answers; entries without a grade are not relevant."""
    best = sorted(grades.values(), reverse=True)
    return _gain([grades.get(name, 0) for name in found]) / _gain(best)


async def judged_quality(
    search: Search, queries: Sequence[JudgedQuery], documents: Sequence[Document]
) -> tuple[dict[str, float], list[tuple[float, str]]]:
    """Return the mean nDCG by kind and of all queries ("all"), and each query's nDCG with its text, the worst first."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    single: list[tuple[float, str]] = []
    grader = Grader(documents)
    for query in queries:
        grades = grader.grades(query)
        found = await search(query.text, query.language.replace(ANY_LANGUAGE, ""), DEPTH)
        value = ndcg(found, grades)
        by_kind[query.kind].append(value)
        single.append((value, f"{query.kind} {query.language}: {query.text}"))
    means = {kind: round(fmean(values), 4) for kind, values in by_kind.items()}
    return means | {"all": round(fmean(value for value, _ in single), 4)}, sorted(single)


async def known_item_quality(
    search: Search, items: Sequence[KnownItem]
) -> tuple[dict[str, float], list[tuple[float, str]]]:
    """Return the mean reciprocal rank by kind, and each query's with its text, the worst first."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    single: list[tuple[float, str]] = []
    for item in items:
        found = list(await search(item.text, item.language, DEPTH))[:DEPTH]
        value = 1 / (found.index(item.answer) + 1) if item.answer in found else 0.0
        by_kind[item.kind].append(value)
        single.append((value, f"{item.kind} {item.language}: {item.text}"))
    return {kind: round(fmean(values), 4) for kind, values in by_kind.items()}, sorted(single)


def _gain(grades: Sequence[int]) -> float:
    return sum((2.0**grade - 1) / log2(rank + 2) for rank, grade in enumerate(grades[:DEPTH]))
