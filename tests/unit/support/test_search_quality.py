"""The corpus, the judgements and the baseline by which the quality of search is measured."""

from collections import Counter

import pytest

from tests.support.search_quality.corpus import LANGUAGES, Document
from tests.support.search_quality.evaluation import corpus_documents, judged_quality, known_item_quality, ndcg
from tests.support.search_quality.fts5 import Fts5Search
from tests.support.search_quality.generated_entries import GENERATED
from tests.support.search_quality.judgements import KINDS, Grader, judged_queries
from tests.support.search_quality.known_items import KNOWN_ITEM_KINDS, known_items


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return corpus_documents(100)


def test_the_corpus_has_thousands_of_entries_in_four_languages() -> None:
    documents = corpus_documents(GENERATED)
    assert len(documents) == len({document.id for document in documents}) >= 5_000
    by_language = Counter(document.channel.language for document in documents)
    assert min(by_language[language] for language in LANGUAGES) > 1_200
    lengths = [len(document.text.split()) for document in documents]
    assert min(lengths) > 10
    assert max(lengths) <= 120
    assert not [document for document in documents if set("{}[]|") & set(f"{document.title}{document.text}")]


def test_every_judged_query_has_an_answer(documents: list[Document]) -> None:
    queries, grader = judged_queries(), Grader(documents)
    assert len(queries) == len({(query.kind, query.language, query.text) for query in queries}) >= 300
    assert {query.kind for query in queries} == set(KINDS)
    assert [query.text for query in queries if max(grader.grades(query).values(), default=0) < 1] == []


def test_grades_follow_the_rules(documents: list[Document]) -> None:
    by_text = {(query.language, query.text): query for query in judged_queries()}
    grader = Grader(documents)
    grades = grader.grades(by_text["en", "python -snake"])
    assert grades["en/python/gil/0"] == 3
    assert not any(name.startswith("en/python/snake/") for name in grades)
    assert set(grader.grades(by_text["de", "lang:de rust"])) <= {
        document.id for document in documents if document.channel.language == "de"
    }
    assert grader.grades(by_text["*", "Brandvold"])["fr/football/brandvold/0"] == 3


def test_ndcg_is_one_for_the_best_order_and_less_for_others() -> None:
    grades = {"a": 3, "b": 2, "c": 1}
    assert ndcg(["a", "b", "c"], grades) == 1
    assert 0 < ndcg(["x", "c", "a"], grades) < ndcg(["a", "c", "b"], grades) < 1
    assert ndcg(["x"], grades) == 0


async def test_the_baseline_finds_known_items_as_written(documents: list[Document]) -> None:
    baseline = Fts5Search(documents)

    async def search(text: str, _language: str, most: int) -> list[str]:
        return baseline.search(text, most)

    items = known_items(documents, per_kind=5)
    assert {item.kind for item in items} == set(KNOWN_ITEM_KINDS)
    found, _ = await known_item_quality(search, items)
    assert found["title"] > 0.9
    assert found["title with swapped letters"] < 0.2
    judged, _ = await judged_quality(search, judged_queries()[::5], documents)
    assert judged["all"] > 0.7
    baseline.close()
