"""Invariants of names, queries and saved searches: the index finds exactly what a full comparison finds."""

import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.discovery.names import DeclaredMetadata, channel_pairs, entry_pairs
from service.discovery.query_parser import format_condition, parse_query, parse_watch
from service.discovery.saved_searches import (
    PairsCondition,
    PatternCondition,
    PhraseCondition,
    SavedSearchIndex,
    SearchableEntry,
    SearchCondition,
    matches,
    rarest,
)
from service.errors import BadQuery
from service.model import Channel, Entry

CHANNEL = Channel("c" * 40, "https://blog.example.org/feed", "Blog")
WORDS = ("alpha", "beta", "gamma", "delta", "the", "é", "日本", "C3PO")
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
tags = st.lists(st.sampled_from(("python", "rust", "go lang")), max_size=3).map(tuple)
entries = st.builds(Entry, key=st.just("k"), title=texts, summary=texts, tags=tags)

pairs = st.sampled_from(
    ("tag=python", "tag=rust", "tag=go lang", "word=alpha", "word=beta", "lang=en", "lang=de", "domain=example.org")
)
topics = st.builds(PairsCondition, st.lists(pairs, min_size=1, max_size=4, unique=True).map(tuple))
phrases = st.builds(
    PhraseCondition, st.lists(st.sampled_from(("alpha", "beta", "the", "é", "日本")), min_size=1, max_size=3).map(tuple)
)
patterns = st.builds(PatternCondition, st.sampled_from(("alp.a", r"beta\s+gamma", "^delta", "c3po$", "日.")))
standing = st.one_of(topics, phrases, patterns)
changes = st.lists(st.tuples(st.integers(0, 9).map(str), st.none() | standing), max_size=40)


def subject(entry: Entry, language: str) -> SearchableEntry:
    return SearchableEntry(entry, entry_pairs(entry, CHANNEL, DeclaredMetadata(language), "example.org"))


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
    assert not matcher._topics
    assert not matcher._phrases
    assert not matcher._patterns
    assert not matcher._keys


@given(st.dictionaries(pairs, st.floats(0, 1), min_size=1))
def test_rarest_returns_the_pair_of_the_smallest_share(shares: dict[str, float]) -> None:
    assert shares[rarest(shares, shares.__getitem__)] == min(shares.values())


@given(st.text() | st.text(alphabet=string.ascii_letters + '="/\\ \n', max_size=60))
def test_any_text_is_parsed_or_refused_and_formatting_is_stable(text: str) -> None:
    try:
        parse_query(text)
    except BadQuery as refusal:
        said = str(refusal)
    else:
        said = ""
    assert not [each for each in said if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")]
    try:
        wanted = parse_watch(text)
    except BadQuery:
        return
    assert parse_watch(format_condition(wanted)) == wanted


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
        assert parse_query(format_condition(PairsCondition((each,)))).pairs == tuple(sorted({each} | _parents(each)))
        assert parse_query(format_condition(PairsCondition((each,)))).matches(frozenset(name))


def _parents(pair: str) -> set[str]:
    return {pair.partition(" of ")[2]} if pair.startswith(("region=", "version=")) else set()


@pytest.mark.parametrize("text", ["a=1 " * 10_000, '"' * 100_000, "\\" * 100_000, "=" * 100_000, "/" + "(" * 100_000])
def test_overlong_queries_are_refused_at_once(text: str) -> None:
    for parse in (parse_query, parse_watch):
        with pytest.raises(BadQuery):
            parse(text)
