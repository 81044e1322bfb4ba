"""One article in several channels is recognised; what only looks alike is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.feeds.entries.version_parts import ARTICLE_HASH_BYTES, article_hashes
from service.model import Entry

LONG = (
    "It was a bright cold day in April, and the clocks were striking thirteen; nobody in the street looked up at them."
)
ARTICLE = Entry("1", "Cold day", "https://example.com/2024/cold-day", LONG)


def alike(one: Entry, other: Entry) -> bool:
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
def test_two_of_link_title_and_long_text_are_enough(other: Entry) -> None:
    assert alike(ARTICLE, other)


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
def test_one_trait_alone_is_not_enough(one: Entry, other: Entry) -> None:
    assert not alike(one, other)


def test_a_fragment_may_be_the_article() -> None:
    assert alike(
        Entry("1", "Home", "https://example.com/#/posts/1"), Entry("2", "Home", "http://example.com#/posts/1", "x")
    )


@given(st.builds(Entry, st.text(), st.text(), st.text(), st.text()))
def test_marks_are_few_short_distinct_and_the_same_for_every_channel(entry: Entry) -> None:
    found = article_hashes(entry)
    assert len(found) == len(set(found)) <= 3
    assert all(len(mark) == ARTICLE_HASH_BYTES for mark in found)
    assert found == article_hashes(Entry("another key", entry.title, entry.link, entry.summary))
