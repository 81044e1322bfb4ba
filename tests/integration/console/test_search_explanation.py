"""The page Directory and the API explain how a query was answered and why the results are in this order."""

from urllib.parse import quote

import pytest
from msgspec import json

from service.console.resources.fleet.search_explanation import SearchResult
from service.store import Store
from tests.support.channels import make_channel
from tests.support.console import Visitor
from tests.support.search_quality.corpus import story_documents
from tests.support.search_quality.product import publish_corpus


async def _publish_volcanoes(store: Store) -> None:
    await publish_corpus(
        store, [each for each in story_documents("en") if each.story.startswith("volcano/")], readers=5
    )


async def _search(visitor: Visitor, query: str) -> SearchResult:
    status, text = await visitor.get(f"/api/v1/search?q={quote(query)}")
    assert status == 200, text
    return json.decode(text, type=SearchResult)


async def test_results_have_scores_whose_parts_add_up(store: Store, ada: Visitor) -> None:
    await _publish_volcanoes(store)
    found = await _search(ada, "type:entry volcano hekla")
    assert found.source == "matrices"
    assert found.cells > 0
    assert [max(each.names for each in clause.alternatives) > 0 for clause in found.clauses] == [True, True]
    assert found.clauses[1].importance >= found.clauses[0].importance, "the rarer word is no less important"
    order = [(item.lacks_words, -item.score.total) for item in found.items if not item.lacks_words]
    assert order
    assert order == sorted(order)
    for item in found.items:
        score = item.score
        assert len(score.clauses) == (1 if item.lacks_words else 2)
        relevance = sum(each.relevance for each in score.clauses)
        assert score.total == pytest.approx(
            relevance * (1 + score.as_written + score.subscribers + score.language + score.recency)
        )
    assert found.total == len(found.items)


async def test_a_similar_word_is_named(store: Store, ada: Visitor) -> None:
    await _publish_volcanoes(store)
    found = await _search(ada, "type:entry vulcano")
    assert [each.word for each in found.corrections] == ["vulcano"]
    similar = [each for each in found.clauses[0].alternatives if each.factor < 1 and each.names]
    assert similar
    assert found.items
    _, page = await ada.get("/directory?q=type:entry+vulcano")
    assert "Nothing has “vulcano”" in page


async def test_results_with_some_of_the_words_follow_those_with_all(store: Store, ada: Visitor) -> None:
    await _publish_volcanoes(store)
    found = await _search(ada, "type:entry hekla volcano limit=50")
    lacking = [item.lacks_words for item in found.items]
    assert lacking == sorted(lacking)
    assert {True, False} == set(lacking)
    found = await _search(ada, "type:entry hekla zebra -museum")
    assert found.items
    assert all(item.lacks_words for item in found.items)
    assert [clause.is_optional for clause in found.clauses] == [True, True]
    _, page = await ada.get("/directory?q=type:entry+hekla+zebra")
    assert "Nothing has all the words." in page
    assert not (await _search(ada, "type:entry hekla zebra lang:de")).items


async def test_the_page_shows_conditions_and_scores(store: Store, ada: Visitor) -> None:
    await _publish_volcanoes(store)
    hidden = await make_channel(store, "https://hidden.example/volcano")
    _, page = await ada.get(f"/directory?q={quote('type:entry volcano -museum')}")
    for text in ("Relevance", "Importance", "word=volcano", "Excluded", "Hekla erupts after 26 quiet years"):
        assert text in page
    assert "Visitors put on helmets" not in page
    assert hidden.id not in page
    status, page = await ada.get("/directory?q=nothing+of+that+kind")
    assert status == 200
    assert "No public matches" in page


async def test_a_search_that_is_refused_keeps_its_text(ada: Visitor) -> None:
    status, page = await ada.get(f"/directory?q={quote('volcano NEAR hekla')}")
    assert status == 422
    assert 'value="volcano NEAR hekla"' in page
