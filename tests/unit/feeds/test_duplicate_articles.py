"""The parts of a version, and the article hashes by which the same article is found in several channels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from service.feeds.entries.duplicate_articles import (
    ARTICLE_HASH_BYTES,
    MAX_HASHED_ARTICLES,
    article_hashes,
    hash_version,
)
from service.feeds.entries.version_parts import select_part
from service.model import Change, Delta, Entry, Notice

feed_changes = st.builds(Change, st.sampled_from(["addition", "omission", "replacement"]), st.builds(Entry, st.text()))
page_changes = st.builds(
    Change, st.sampled_from(["addition", "omission", "replacement"]), st.builds(Entry, st.text()), st.integers(1, 99)
)


def delta(*changes: Change, notice: Notice | None = None) -> Delta:
    return Delta("c" * 40, 1, 2, 0.0, changes, notice=notice)


def entry(number: int) -> Entry:
    return Entry(str(number), f"An article with a title, number {number}", f"https://example.org/articles/{number}")


def test_articles_have_hashes_at_their_positions() -> None:
    found = hash_version(
        delta(Change("addition", entry(1)), Change("replacement", entry(2)), Change("addition", entry(3)))
    )
    assert found.news is not None
    assert found.edits is not None
    own = [hashed[0] for _, hashed in (*found.news, *found.edits)]
    assert [(position, hashed[1:]) for position, hashed in found.news] == [
        (0, article_hashes(entry(1))),
        (2, article_hashes(entry(3))),
    ]
    assert [(position, hashed[1:]) for position, hashed in found.edits] == [(1, article_hashes(entry(2)))]
    assert len(set(own)) == 3


def test_the_entry_hash_is_stable_across_edits_and_differs_between_channels() -> None:
    delivered = hash_version(delta(Change("addition", Entry("k", "Old"))))
    edited = hash_version(delta(Change("replacement", Entry("k", "New"))))
    elsewhere = hash_version(structs.replace(delta(Change("addition", Entry("k", "Old"))), channel="d" * 40))
    assert delivered.news is not None
    assert edited.edits is not None
    assert elsewhere.news is not None
    assert delivered.news[0][1][0] == edited.edits[0][1][0] != elsewhere.news[0][1][0]


def test_page_changes_and_notices_are_news_without_articles() -> None:
    for delivered in (delta(Change("replacement", entry(1), 3, "before")), delta(notice=Notice("back"))):
        found = hash_version(delivered)
        assert (found.news, found.edits) == ((), None)


def test_an_omitted_entry_is_in_no_part() -> None:
    found = hash_version(delta(Change("omission", entry(1))))
    assert (found.news, found.edits) == (None, None)


def test_only_the_first_articles_have_article_hashes() -> None:
    found = hash_version(delta(*(Change("addition", entry(number)) for number in range(MAX_HASHED_ARTICLES + 5))))
    assert found.news is not None
    assert len(found.news) == MAX_HASHED_ARTICLES + 5
    assert sum(len(own) > 1 for _, own in found.news) == MAX_HASHED_ARTICLES


@given(st.lists(feed_changes) | st.lists(page_changes), st.sets(st.integers(0, 9)))
def test_each_change_is_in_exactly_one_part_unless_left_out(changes: list[Change], left_out: set[int]) -> None:
    whole = delta(*changes)
    shares = [select_part(whole, edits=edits, left_out=left_out).changes for edits in (False, True)]
    kept = [change for position, change in enumerate(changes) if position not in left_out]
    assert sorted(map(repr, (*shares[0], *shares[1]))) == sorted(map(repr, kept))


LONG = (
    "It was a bright cold day in April, and the clocks were striking thirteen; nobody in the street looked up at them."
)
ARTICLE = Entry("1", "Cold day", "https://example.com/2024/cold-day", LONG)


def is_same_article(one: Entry, other: Entry) -> bool:
    return bool(set(article_hashes(one)) & set(article_hashes(other)))


@pytest.mark.parametrize(
    "other",
    [
        Entry("2", "Cold day", "http://www.example.com/2024/cold-day/?utm_source=planet", "Another excerpt."),
        Entry("2", "Site: Cold day", "https://example.com/2024/cold-day", LONG),
        Entry("2", "COLD  day", "https://planet.example.org/7", LONG.replace(" ", "\n")),
        Entry("2", "Cold day", "", LONG),
    ],
)
def test_two_equal_fields_of_link_title_and_long_text_identify_an_article(other: Entry) -> None:
    assert is_same_article(ARTICLE, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ARTICLE, Entry("2", "A comment", "https://example.com/2024/cold-day", "I agree.")),
        (ARTICLE, Entry("2", "Cold day", "https://example.com/2025/cold-day", "It is cold again.")),
        (
            Entry("1", "Reply", "https://example.com/thread#1", "Yes."),
            Entry("2", "Reply", "https://example.com/thread#2", "Yes."),
        ),
        (Entry("1", "Backup", "", "Backup done."), Entry("2", "Backup", "", "Backup done.")),
        (Entry("1", "", "https://example.com/a"), Entry("2", "", "https://example.com/a")),
        (Entry("1", "Episode", "https://pod.example.com/"), Entry("2", "Episode", "https://pod.example.com/")),
        (Entry("1", "Episode", "https://pod.example.com"), Entry("2", "Episode", "http://www.pod.example.com/")),
        (Entry("1", "One", "", LONG), Entry("2", "Two", "", LONG)),
    ],
)
def test_one_equal_field_does_not_identify_an_article(one: Entry, other: Entry) -> None:
    assert not is_same_article(one, other)


def test_a_fragment_distinguishes_articles() -> None:
    assert is_same_article(
        Entry("1", "Home", "https://example.com/#/posts/1"), Entry("2", "Home", "http://example.com#/posts/1", "x")
    )


@given(st.builds(Entry, st.text(), st.text(), st.text(), st.text()))
def test_article_hashes_are_few_short_distinct_and_channel_independent(entry: Entry) -> None:
    found = article_hashes(entry)
    assert len(found) == len(set(found)) <= 3
    assert all(len(mark) == ARTICLE_HASH_BYTES for mark in found)
    assert found == article_hashes(Entry("another key", entry.title, entry.link, entry.summary))
