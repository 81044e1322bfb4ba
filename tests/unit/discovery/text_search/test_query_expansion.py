"""Query expansion: which registered words stand for the words of a query, and which documents satisfy it."""

import datetime as dt
from collections.abc import Sequence

import pytest

from service.discovery.content_names import DeclaredMetadata, entry_pairs, entry_text
from service.discovery.queries.query import Correction
from service.discovery.queries.query_parser import parse_query
from service.discovery.text_search.query_expansion import (
    MAX_PREFIX_STEMS,
    MAX_SIMILAR_STEMS,
    ExpandedQuery,
    MatchKind,
    correctable_words,
    expand,
    word_pair,
)
from service.discovery.text_search.vocabulary import Vocabulary
from service.discovery.word_analysis import LANGUAGES
from service.model import Channel, Entry

CHANNEL = Channel("c" * 40, "https://example.org/feed", language="en")
DAY = dt.date(2026, 11, 1)
WORDS = [
    ("volcanoes", "volcano"),
    ("volcano", "volcano"),
    ("python", "python"),
    ("pythons", "python"),
    ("pythonic", "python"),
]


def expanded(text: str, *, words: Sequence[tuple[str, str]] = WORDS, tolerant: bool = False) -> ExpandedQuery:
    """Expand a query as a search does if documents have these words: tuples (word, stem)."""
    query, vocabulary = parse_query(f"type:entry {text}", DAY), Vocabulary(words)
    if tolerant:
        return expand(query, vocabulary, "en", correctable_words(query))
    missing = expand(query, vocabulary, "en").words_without_documents({word_pair(stem): 1 for _, stem in words})
    return expand(query, vocabulary, "en", missing)


def pairs(query: ExpandedQuery) -> list[dict[str, float]]:
    return [{each.pair: each.factor for each in clause.alternatives} for clause in query.clauses]


def satisfies(entry: Entry, text: str) -> bool:
    name = entry_pairs(entry, CHANNEL, DeclaredMetadata("en"), "example.org")
    attributes = {pair for pair in name if not pair.startswith("word=")}
    return expanded(text).match(entry_text(entry, "en"), attributes) is not MatchKind.NONE


def test_a_word_is_expanded_to_its_stems_with_most_weight_in_the_users_language() -> None:
    (clause,) = pairs(expanded("volcanoes"))
    assert clause["word=volcano"] == 1
    assert all(factor < 1 for pair, factor in clause.items() if pair not in ("word=volcano", "word=volcanoes"))


def test_a_misspelt_word_is_expanded_to_similar_words_with_less_weight() -> None:
    (clause,) = pairs(expanded("pyhton"))
    assert clause["word=python"] == 0.5
    (clause,) = pairs(expanded("volacnoes"))
    assert clause["word=volcano"] == 0.5


@pytest.mark.parametrize("word", ["python", "cat", "c++", "2027", "1234567"])
def test_registered_short_and_numeric_words_have_no_similar_words(word: str) -> None:
    words = [("pithon", "pithon"), ("python", "python"), ("car", "car"), ("2026", "2026"), ("1234568", "1234568")]
    assert not expanded(word, words=words).similar


def test_a_tolerant_expansion_adds_words_similar_to_registered_ones() -> None:
    words = [("form", "form"), ("from", "from")]
    assert not expanded("form", words=words).similar
    assert "word=from" in pairs(expanded("form", words=words, tolerant=True))[0]


def test_a_prefix_is_expanded_to_the_words_that_begin_with_it() -> None:
    (clause,) = pairs(expanded("volc*"))
    assert "word=volcano" in clause


def test_the_number_of_candidates_is_bounded() -> None:
    written = [f"volcan{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(500)]
    words = list(zip(written, written, strict=True))
    stems = len(LANGUAGES) + 1
    assert len(pairs(expanded("volcan*", words=words))[0]) <= MAX_PREFIX_STEMS + stems
    assert len(pairs(expanded("volcanxx", words=words))[0]) <= MAX_SIMILAR_STEMS + stems


def test_a_long_query_has_bounded_clauses() -> None:
    query = " ".join(["x" * 175] * 16)
    assert sum(map(len, pairs(expanded(query)))) < 100


def test_alternatives_make_one_clause_and_phrases_one_for_each_word() -> None:
    assert len(pairs(expanded("rust OR python"))) == 1
    assert len(pairs(expanded('"garbage collection in python"'))) == 3


def test_excluded_words_exclude_all_their_forms() -> None:
    assert "word=python" in expanded("snake -pythons").excluded


@pytest.mark.parametrize(
    ("text", "is_satisfied"),
    [
        ("volcano", True),
        ("VOLCANOES erupting", True),
        ('"volcano erupts"', True),
        ('"erupts volcano"', False),
        ("title:ash", False),
        ("title:volcano", True),
        ("volc* -lava", True),
        ("volcano -ashes", False),
        ('volcano -"ash cloud"', False),
        ("zebra OR geology", True),
        ("tag:geology", True),
        ("tag:geo", False),
        ("volcamo", True),
    ],
)
def test_queries_are_evaluated_on_the_text_and_tags_of_an_entry(text: str, *, is_satisfied: bool) -> None:
    entry = Entry("1", "Volcano erupts in Iceland", summary="An ash cloud drifts east.", tags=("Geology",))
    assert satisfies(entry, text) is is_satisfied


def test_a_correction_is_a_written_word_and_not_a_stem() -> None:
    text = entry_text(Entry("1", "Two volcanoes"), "en")
    assert list(expanded("volcamoes").corrections([(text, set())])) == [Correction("volcamoes", "volcanoes")]
    assert not list(expanded("volcano").corrections([(text, set())]))


def test_a_word_that_one_document_has_is_not_corrected() -> None:
    texts = [entry_text(Entry("1", title), "en") for title in ("Two volcanoes", "Our volcamoes", "No such word")]
    assert not list(expanded("volcamoes").corrections([(text, set()) for text in texts]))


@pytest.mark.parametrize(
    ("text", "optional"),
    [
        ("volcano python", 2),
        ("volcano OR ash python pyth*", 3),
        ("volcano", 0),
        ('volcano "two words"', 0),
        ("volcano lang:en title:iceland", 0),
        ("volcano python lang:en title:iceland", 2),
        ("volcano OR lang:en python ash", 2),
        ("volcano -python", 0),
    ],
)
def test_words_are_optional_only_if_there_are_several(text: str, optional: int) -> None:
    query = expand(parse_query(f"type:entry {text}", DAY), Vocabulary(WORDS))
    assert len(query.optional) == sum(clause.is_optional for clause in query.clauses) == optional


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("volcano zebra", MatchKind.SOME_WORDS),
        ("zebra giraffe", MatchKind.NONE),
        ("volcano zebra -ash", MatchKind.NONE),
        ("volcano zebra tag:geology", MatchKind.SOME_WORDS),
        ("volcano zebra tag:sport", MatchKind.NONE),
        ('volcano zebra "in Iceland"', MatchKind.SOME_WORDS),
        ('volcano zebra "in Norway"', MatchKind.NONE),
        ("volcano cloud tag:geology", MatchKind.ALL_WORDS),
        ("volcano", MatchKind.ALL_WORDS),
    ],
)
def test_one_of_several_optional_words_is_enough(text: str, found: MatchKind) -> None:
    entry = Entry("1", "Volcano erupts in Iceland", summary="An ash cloud drifts east.", tags=("Geology",))
    query = expand(parse_query(f"type:entry {text}", DAY), Vocabulary(WORDS))
    assert query.match(entry_text(entry, "en"), {"tag=geology"}) is found
