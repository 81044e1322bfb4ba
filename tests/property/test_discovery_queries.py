"""Invariants of names, queries and saved searches: the index finds exactly what a full comparison finds."""

import string
import unicodedata
from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.discovery.content_names import DeclaredMetadata, channel_pairs, entry_pairs
from service.discovery.queries.query import Condition, PairCondition, PhraseCondition, WordCondition
from service.discovery.queries.query_parser import parse_query, parse_watch, saved_search_text
from service.discovery.queries.saved_searches import (
    PatternCondition,
    QueryCondition,
    SavedSearchIndex,
    SearchableEntry,
    SearchCondition,
    matches,
)
from service.errors import BadQuery
from service.model import Channel, Entry

CHANNEL = Channel("c" * 40, "https://blog.example.org/feed", "Blog")
TODAY = date(2026, 11, 23)
WORDS = ("alpha", "alphas", "beta", "betas", "the", "é", "日本", "C3PO", "node.js")
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
tags = st.lists(st.sampled_from(("python", "rust", "go lang")), max_size=3).map(tuple)
entries = st.builds(Entry, key=st.just("k"), title=texts, summary=texts, tags=tags)

pairs = st.sampled_from(("tag=python", "tag=rust", "tag=go lang", "lang=en", "lang=de", "domain=example.org"))
conditions = st.one_of(
    st.builds(PairCondition, pairs),
    st.builds(WordCondition, st.sampled_from(("alpha", "betas", "日本", "js", "gamma")), in_title=st.booleans()),
    st.builds(WordCondition, st.sampled_from(("al", "alphas", "c3p", "日")), st.just(True), st.booleans()),
    st.builds(
        PhraseCondition,
        st.lists(st.sampled_from(("alpha", "beta", "the", "e", "日本")), min_size=1, max_size=3).map(tuple),
        st.booleans(),
    ),
)
groups = st.lists(conditions, min_size=1, max_size=3).map(tuple)
queries = st.builds(
    QueryCondition, st.lists(groups, min_size=1, max_size=3).map(tuple), st.lists(conditions, max_size=2).map(tuple)
)
patterns = st.builds(PatternCondition, st.sampled_from(("alp.a", r"beta\s+gamma", "^delta", "c3po$", "日.")))
standing = st.one_of(queries, patterns)
changes = st.lists(st.tuples(st.integers(0, 9).map(str), st.none() | standing), max_size=40)


def subject(entry: Entry, language: str) -> SearchableEntry:
    return SearchableEntry(entry, entry_pairs(entry, CHANNEL, DeclaredMetadata(language), "example.org"), language)


@given(changes, st.lists(st.tuples(entries, st.sampled_from(("en", "de-CH", "")))))
def test_the_index_finds_exactly_the_matching_searches(
    history: list[tuple[str, SearchCondition | None]], seen: list[tuple[Entry, str]]
) -> None:
    matcher, held = SavedSearchIndex(), dict[str, SearchCondition]()
    for watch, wanted in history:
        if wanted is None:
            matcher.remove(watch)
            held.pop(watch, None)
        else:
            matcher.put(watch, wanted)
            held[watch] = wanted
        for entry, language in seen[:2]:
            found = matcher.match(subject(entry, language))
            assert found == {one for one, each in held.items() if matches(each, subject(entry, language))}
    assert len(matcher) == len(held)
    for entry, language in seen:
        found = matcher.match(subject(entry, language))
        assert found == {one for one, each in held.items() if matches(each, subject(entry, language))}


@given(st.lists(st.tuples(st.integers(0, 9).map(str), standing), max_size=20))
def test_an_index_without_searches_is_empty(history: list[tuple[str, SearchCondition]]) -> None:
    matcher = SavedSearchIndex()
    for watch, wanted in history:
        matcher.put(watch, wanted)
    for watch, _ in history:
        matcher.remove(watch)
    assert len(matcher) == 0
    assert not matcher._indexed
    assert not matcher._places
    assert not matcher._patterns
    assert not matcher._beginnings._by_head


@given(conditions, entries, st.sampled_from(("en", "de", "fr", "es", "")))
def test_a_search_for_a_word_of_an_entry_finds_it(condition: Condition, entry: Entry, language: str) -> None:
    """Whatever the entry's language is. Further conditions have the effect that they have alone."""
    own = subject(entry, language)
    has_other = matches(QueryCondition(((condition,),)), own)
    for word in own.words:
        wanted = (WordCondition(word),)
        assert matches(QueryCondition((wanted,)), own)
        assert matches(QueryCondition((wanted,), (condition,)), own) is not has_other
        assert matches(QueryCondition((wanted, (condition,))), own) is has_other
        assert matches(QueryCondition(((*wanted, condition),)), own)


@given(st.text() | st.text(alphabet=string.ascii_letters + '=:"/\\ \n-|*()~^+!', max_size=60))
def test_any_text_is_parsed_or_refused_and_formatting_is_stable(text: str) -> None:
    try:
        parse_query(text, TODAY)
    except BadQuery as refusal:
        said = str(refusal)
    else:
        said = ""
    assert not [each for each in said if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")]
    try:
        wanted = parse_watch(text)
    except BadQuery:
        return
    assert parse_watch(saved_search_text(text)) == wanted


@example(title="", tags=(), authors=(), language="", generator="“¼")
@example(title="", tags=("end of age",), authors=(), language="de-AT", generator="pi of 2")
@given(
    title=st.text(),
    tags=st.lists(st.text(), max_size=12).map(tuple),
    authors=st.lists(st.text(), max_size=6).map(tuple),
    language=st.text(max_size=12),
    generator=st.text(),
)
def test_every_pair_of_a_name_can_be_queried(
    title: str, tags: tuple[str, ...], authors: tuple[str, ...], language: str, generator: str
) -> None:
    channel = Channel("c" * 40, "https://blog.example.org/feed", title)
    name = channel_pairs(channel, DeclaredMetadata(language, tags, authors, generator), "example.org", 3600.0)
    for each in name:
        if not each.startswith("word="):
            is_dependent = each.partition("=")[0] in ("region", "version")
            written = " ".join(_in_quotes(one) for one in (each.split(" of ", 1) if is_dependent else [each]))
            assert each in parse_query(written, TODAY).attributes


def _in_quotes(pair: str) -> str:
    name, _, value = pair.partition("=")
    return f'{name}:"{value.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'


@pytest.mark.parametrize("text", ["a=1 " * 10_000, '"' * 100_000, "\\" * 100_000, "=" * 100_000, "/" + "(" * 100_000])
def test_overlong_queries_are_refused_at_once(text: str) -> None:
    with pytest.raises(BadQuery):
        parse_query(text, TODAY)
    with pytest.raises(BadQuery):
        parse_watch(text)
