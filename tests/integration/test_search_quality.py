"""Search orders a part of the judged corpus well; ``tests.bench.bench_search_quality`` measures the whole corpus."""

import asyncio
from functools import partial
from statistics import fmean
from typing import Final

from service.store import Store
from tests.support.search_quality.corpus import Document, round_ups, story_documents
from tests.support.search_quality.evaluation import judged_quality, known_item_quality
from tests.support.search_quality.fts5 import Fts5Search
from tests.support.search_quality.judgements import ANY_LANGUAGE, Grader, judged_queries
from tests.support.search_quality.known_items import known_items
from tests.support.search_quality.product import publish_corpus, search_product

MIN_NDCG: Final = 0.85
MIN_MRR: Final = 0.9
MIN_SWAPPED_MRR: Final = 0.7


async def test_search_ranking_meets_the_quality_thresholds(store: Store) -> None:
    asyncio.get_running_loop().set_debug(False)  # it takes half of the time
    documents: list[Document] = [*story_documents("en"), *round_ups("en")]
    grader = Grader(documents)
    queries = [
        query
        for query in judged_queries()
        if query.language in ("en", ANY_LANGUAGE) and max(grader.grades(query).values(), default=0) > 1
    ][::4]
    items = known_items(documents, per_kind=6)
    await publish_corpus(store, documents)
    baseline = Fts5Search(documents)

    async def search_baseline(text: str, _language: str, most: int) -> list[str]:
        return baseline.search(text, most)

    judged, worst = await judged_quality(partial(search_product, store), queries, documents)
    by_fts5, _ = await judged_quality(search_baseline, queries, documents)
    known, missed = await known_item_quality(partial(search_product, store), items)
    baseline.close()
    assert judged["all"] >= max(MIN_NDCG, by_fts5["all"]), worst[:20]
    assert fmean(known.values()) >= MIN_MRR, missed[:10]
    assert known["title with swapped letters"] >= MIN_SWAPPED_MRR, missed[:10]
