"""Quality of search on the judged corpus, beside full-text search by SQLite's FTS5 on the same entries.

Registers the corpus of tests/support/search_quality in a private Redis, as workers do, and asks all judged queries and
known-item queries. Prints a table, or JSON: nDCG@10 and MRR@10 by kind. Fails if a bound does not hold.
``--write`` writes docs/experiments/search-quality.md; ``--worst N`` lists the queries with the lowest nDCG.

``python -m tests.bench.bench_search_quality [--json] [--write] [--worst N] [--generated N]``
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from service.embedded.private_redis import PrivateRedis
from service.observability.log_configuration import configure
from service.settings import Settings
from service.store import open_store
from tests.support.search_quality.corpus import LANGUAGES, Document
from tests.support.search_quality.evaluation import Search, corpus_documents, judged_quality, known_item_quality
from tests.support.search_quality.fts5 import Fts5Search
from tests.support.search_quality.generated_entries import GENERATED
from tests.support.search_quality.judgements import judged_queries
from tests.support.search_quality.known_items import KNOWN_ITEM_KINDS, known_items
from tests.support.search_quality.product import publish_corpus, search_product

MIN_NDCG: Final = 0.85
MAX_BEHIND_FTS5: Final = 0.02
MIN_SWAPPED_MRR: Final = 0.7
SWAPPED: Final = "title with swapped letters"
PAGE: Final = Path(__file__).parents[2] / "docs/experiments/search-quality.md"


class Quality(msgspec.Struct, frozen=True):
    """The quality of one search: nDCG@10 by kind of judged query, and MRR@10 by kind of known-item query.

    ``worst`` has the judged and known-item queries with the lowest values, the lowest first.
    """

    ndcg: dict[str, float]
    mrr: dict[str, float]
    worst: list[tuple[float, str]]


async def measure(search: Search, documents: Sequence[Document]) -> Quality:
    """Return the quality of a search of these entries."""
    judged, single = await judged_quality(search, judged_queries(), documents)
    known, single_known = await known_item_quality(search, known_items(documents))
    return Quality(judged, known, sorted([*single, *single_known]))


async def measure_fts5(
    documents: Sequence[Document], *, fills_up: bool = False, knows_language: bool = False
) -> Quality:
    """Return the quality of the baseline; if ``knows_language``, entries in the asker's language precede others."""
    baseline = Fts5Search(documents, fills_up=fills_up)

    async def search(text: str, language: str, most: int) -> list[str]:
        return baseline.search(text, most, language if knows_language else "")

    try:
        return await measure(search, documents)
    finally:
        baseline.close()


async def measure_product(documents: Sequence[Document]) -> tuple[Quality, dict[str, float]]:
    """Return the quality of the product, and what it costs."""
    with tempfile.TemporaryDirectory() as folder:
        async with PrivateRedis(Path(folder)) as redis:
            store = open_store(Settings(redis_url=redis.url))
            began_s = time.process_time()
            await publish_corpus(store, documents)
            registered_s = time.process_time() - began_s
            used = int((await store.redis.call("INFO", "memory"))["used_memory"])
            began_s = time.process_time()
            quality = await measure(partial(search_product, store), documents)
            searched_s = time.process_time() - began_s
            await store.close()
    asked = len(judged_queries()) + len(known_items(documents))
    return quality, {
        "registration_processor_ms_per_entry": round(1_000 * registered_s / len(documents), 2),
        "redis_kilobytes_per_entry": round(used / len(documents) / 1_000, 2),
        "search_processor_ms_per_query": round(1_000 * searched_s / asked, 2),
    }


def shortcomings(product: Quality, baseline: Quality) -> list[str]:
    """Return the claims that do not hold; ``baseline`` is FTS5 that requires all words."""
    found = []
    if product.ndcg["all"] < MIN_NDCG:
        found.append(f"nDCG@10 is {product.ndcg['all']}, less than {MIN_NDCG}")
    found += [
        f"nDCG@10 of {kind!r} is {product.ndcg[kind]}; FTS5 has {value}"
        for kind, value in baseline.ndcg.items()
        if product.ndcg[kind] < value
    ]
    found += [
        f"MRR@10 of {kind!r} is {product.mrr[kind]}; FTS5 has {value}"
        for kind, value in baseline.mrr.items()
        if product.mrr[kind] < value - MAX_BEHIND_FTS5
    ]
    if product.mrr[SWAPPED] < MIN_SWAPPED_MRR:
        found.append(f"MRR@10 of {SWAPPED!r} is {product.mrr[SWAPPED]}, less than {MIN_SWAPPED_MRR}")
    return found


def format_page(documents: Sequence[Document], qualities: Mapping[str, Quality], failed: Sequence[str]) -> str:
    """Return the page about these figures in Markdown; ``qualities`` are by the name of the search."""
    names = list(qualities)
    queries, items = judged_queries(), known_items(documents)
    numbers = Counter(query.kind for query in queries) + Counter(item.kind for item in items)
    hand_written = sum(not document.is_generated for document in documents)

    def table(rows: Sequence[str], values: Mapping[str, Mapping[str, float]]) -> str:
        head = f"| Kind | Queries | {' | '.join(names)} |\n|---|--:|{'--:|' * len(names)}\n"
        return head + "".join(
            f"| {_DESCRIPTIONS.get(row, row)} | {numbers.get(row, len(queries))} | "
            + " | ".join(f"{values[name][row]:.3f}" for name in names)
            + " |\n"
            for row in rows
        )

    ndcg = {name: quality.ndcg for name, quality in qualities.items()}
    mrr = {name: quality.mrr for name, quality in qualities.items()}
    verdict = (
        "All of these hold." if not failed else "These do not hold:\n\n" + "\n".join(f"- {each}" for each in failed)
    )
    return f"""# Search quality

How well `find` orders entries, beside full-text search by SQLite's FTS5 on the same entries.

`python -m tests.bench.bench_search_quality --write` writes this page. It registers {len(documents):,} entries in
{len(LANGUAGES)} languages in Redis, as workers do, and asks for them as the bot does. {hand_written:,} entries are made
of titles and sentences written by hand, the others are patterns filled with words and rare names
(tests/support/search_quality/corpus.py).

FTS5 has the tokenizer `porter unicode61` without accents, and BM25 with weights for title, text, tags and author. *All
words* requires all words, as the product does. *Any word* appends entries that have some of them: it finds more where
no entry has all words. *Language known* puts entries in the language of the person who asks first; the product knows
this language, too.

## Judged queries: nDCG@10

{len(queries)} queries were written together with the entries and their grades, from 0 to 3, before the product's
search was evaluated (tests/support/search_quality/judgements.py). All have one author, so the columns can be compared
with each other, but not with other test sets. 1 is the best possible order.

{table(list(ndcg[names[0]]), ndcg)}
## Known items: MRR@10

Two rare words of an entry, chosen by rule, should find this entry. The figure is the mean of 1/rank; 1 means that it is
always the first.

{table(KNOWN_ITEM_KINDS, mrr)}
## Bounds

nDCG@10 is at least {MIN_NDCG}, and in every kind no less than that of FTS5 (all words). MRR@10 is in every kind at most
{MAX_BEHIND_FTS5} less than that of FTS5 (all words), and at least {MIN_SWAPPED_MRR} with swapped letters. {verdict}
"""


_DESCRIPTIONS: Final = {
    "word": "One word",
    "two": "Two or three words",
    "inflected": "Inflected words",
    "accents": "Accents dropped",
    "typo": "Typing errors",
    "phrase": "Phrases",
    "field": "Words with `lang:`, `site:`, `author:`, `after:`",
    "exclude": "Excluded words (`-word`)",
    "or": "Alternatives (`OR`)",
    "names": "Names that several languages share",
    "tokens": "`C++`, `node.js`, version numbers",
    "prefix": "Beginnings of words (`pyth*`)",
    "all": "**All**",
    "title": "Words of the title as written",
    "title inflected": "One word inflected",
    "title without accents": "Accents dropped",
    SWAPPED: "Two letters swapped",
    "text": "Words of the text",
}


async def run(generated: int) -> tuple[list[Document], dict[str, Quality], dict[str, float]]:
    """Return the corpus, the quality by the name of the search, and the product's costs."""
    documents = corpus_documents(generated)
    product, costs = await measure_product(documents)
    qualities = {
        "Coronet": product,
        "FTS5, all words": await measure_fts5(documents),
        "FTS5, any word": await measure_fts5(documents, fills_up=True),
        "FTS5, all words, language known": await measure_fts5(documents, knows_language=True),
        "FTS5, any word, language known": await measure_fts5(documents, fills_up=True, knows_language=True),
    }
    return documents, qualities, costs


def main() -> None:
    """Run the benchmark and print its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--generated", type=int, default=GENERATED, help="generated entries in each language")
    options = parser.parse_args()
    configure(Settings(log_level="warning"))
    documents, qualities, costs = asyncio.run(run(options.generated))
    failed = shortcomings(qualities["Coronet"], qualities["FTS5, all words"])
    page = format_page(documents, qualities, failed)
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
    if options.json:
        figures = {name: {"ndcg": each.ndcg, "mrr": each.mrr} for name, each in qualities.items()}
        print(json.dumps({"entries": len(documents), **figures, **costs, "failed": failed}, indent=1))  # noqa: T201 - its output
    else:
        print(page)  # noqa: T201 - its output
    for value, query in qualities["Coronet"].worst[: options.worst]:
        print(f"{value:.2f} {query}")  # noqa: T201 - its output
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
