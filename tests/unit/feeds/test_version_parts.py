"""A version's news and its edits."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from service.feeds.entries.version_parts import MAX_HASHED_ARTICLES, article_hashes, select_part, split_version
from service.model import Change, Delta, Entry, Notice

feed_changes = st.builds(Change, st.sampled_from(["addition", "omission", "replacement"]), st.builds(Entry, st.text()))
page_changes = st.builds(
    Change, st.sampled_from(["addition", "omission", "replacement"]), st.builds(Entry, st.text()), st.integers(1, 99)
)


def delta(*changes: Change, notice: Notice | None = None) -> Delta:
    return Delta("c" * 40, 1, 2, 0.0, changes, notice=notice)


def entry(number: int) -> Entry:
    return Entry(str(number), f"An article with a title, number {number}", f"https://example.org/articles/{number}")


def test_articles_are_marked_at_their_places() -> None:
    found = split_version(
        delta(Change("addition", entry(1)), Change("replacement", entry(2)), Change("addition", entry(3)))
    )
    assert found.news is not None
    assert found.edits is not None
    own = [marked[0] for _, marked in (*found.news, *found.edits)]
    assert [(position, marked[1:]) for position, marked in found.news] == [
        (0, article_hashes(entry(1))),
        (2, article_hashes(entry(3))),
    ]
    assert [(position, marked[1:]) for position, marked in found.edits] == [(1, article_hashes(entry(2)))]
    assert len(set(own)) == 3


def test_an_entry_keeps_its_own_mark_through_edits_and_another_channel_has_another() -> None:
    told = split_version(delta(Change("addition", Entry("k", "Old"))))
    edited = split_version(delta(Change("replacement", Entry("k", "New"))))
    elsewhere = split_version(structs.replace(delta(Change("addition", Entry("k", "Old"))), channel="d" * 40))
    assert told.news is not None
    assert edited.edits is not None
    assert elsewhere.news is not None
    assert told.news[0][1][0] == edited.edits[0][1][0] != elsewhere.news[0][1][0]


def test_what_a_page_says_and_what_is_said_of_a_channel_is_news_and_no_article() -> None:
    for told in (delta(Change("replacement", entry(1), 3, "before")), delta(notice=Notice("back"))):
        found = split_version(told)
        assert (found.news, found.edits) == ((), None)


def test_an_entry_that_a_feed_lists_no_more_is_nothing_to_tell() -> None:
    found = split_version(delta(Change("omission", entry(1))))
    assert (found.news, found.edits) == (None, None)


def test_of_very_many_articles_the_first_are_marked_and_all_are_told() -> None:
    found = split_version(delta(*(Change("addition", entry(number)) for number in range(MAX_HASHED_ARTICLES + 5))))
    assert found.news is not None
    assert len(found.news) == MAX_HASHED_ARTICLES + 5
    assert sum(len(own) > 1 for _, own in found.news) == MAX_HASHED_ARTICLES


@given(st.lists(feed_changes) | st.lists(page_changes), st.sets(st.integers(0, 9)))
def test_each_change_is_in_one_part_unless_it_is_left_out(changes: list[Change], left_out: set[int]) -> None:
    whole = delta(*changes)
    shares = [select_part(whole, edits=edits, left_out=left_out).changes for edits in (False, True)]
    kept = [change for position, change in enumerate(changes) if position not in left_out]
    assert sorted(map(repr, (*shares[0], *shares[1]))) == sorted(map(repr, kept))
