"""Unchanged entries are skipped, unless the rest of the document depends on them."""

import time
from collections.abc import Callable

import pytest

from service.feeds.entries.entry_change_detection import FeedState, detect_entry_changes
from service.feeds.entries.unchanged_entries import MAX_HASHED_ENTRIES, PreviousDocument
from service.feeds.parsing import fast_parser
from service.feeds.parsing.format_detection import parse
from service.model import ParsedEntry, ParsedFeed
from tests.support.feed_documents import atom, item, rss, typical_atom, typical_rss

URL = "https://example.com/feed"
NOW_S = 1_800_000_000.0
NO_PREVIOUS = PreviousDocument({}, b"")


def parse_with(body: bytes, state: FeedState) -> ParsedFeed:
    """Return the feed parsed with the previous document of this state."""
    return parse(body, url=URL, headers={}, previous=state.previous_document())


def state_after(body: bytes) -> FeedState:
    """Return the state after a first poll of this document."""
    return detect_entry_changes(
        None, parse(body, url=URL, headers={}, previous=NO_PREVIOUS), url=URL, now_s=NOW_S
    ).state


@pytest.mark.parametrize("build", [typical_rss, typical_atom])
def test_only_new_entries_are_parsed(build: Callable[[range], bytes]) -> None:
    feed = parse_with(build(range(1, 6)), state_after(build(range(5))))
    assert (len(feed.element_hashes), [entry.title[:25] for entry in feed.entries]) == (
        5,
        ["How I bake bread, part 5 "],
    )


def test_an_edited_entry_is_parsed() -> None:
    before, edited = [item("a"), item("b")], [item("a"), item("b", title="Other")]
    assert parse_with(rss(edited), state_after(rss(before))).entries == (edited[1],)


def test_all_entries_are_parsed_if_the_site_changed() -> None:
    feed = parse_with(rss([item("a")], link="https://other.example/"), state_after(rss([item("a")])))
    assert len(feed.entries) == 1
    assert feed.element_hashes == ()


def test_all_entries_are_parsed_if_a_title_follows_a_skipped_entry() -> None:
    text = atom([item("a")]).decode().replace("<title>Example</title>", "", 1)
    late = text.replace("</feed>", "<title>Example</title></feed>").encode()
    feed = parse_with(late, state_after(late))
    assert (feed.title, len(feed.entries)) == ("Example", 1)


def test_an_entry_with_another_base_url_is_parsed() -> None:
    based = atom([item("a", link="a")]).decode().replace("<feed", "<feed xml:base='https://example.com/{}/'").format
    assert len(parse_with(based("b").encode(), state_after(based("a").encode())).entries) == 1
    assert len(parse_with(based("a").encode(), state_after(based("a").encode())).entries) == 0


def test_documents_parsed_by_feedparser_have_no_element_hashes() -> None:
    broken = rss([item("a")]).replace(b"</rss>", b"")
    assert parse_with(broken, state_after(rss([item("a")]))).element_hashes == ()


@pytest.mark.parametrize("written", ["<item><title>{}</title></item>", "<item guid='{}'/>"])
def test_long_documents_have_no_element_hashes(written: str) -> None:
    def read(count: int) -> tuple[int, tuple[ParsedEntry, ...]]:
        items = "".join(map(written.format, range(count)))
        text = f"<rss version='2.0'><channel><title>T</title>{items}</channel></rss>"
        feed = fast_parser.parse(text, url=URL, language="", previous=NO_PREVIOUS)
        assert feed
        return len(feed.element_hashes), feed.entries

    assert (read(MAX_HASHED_ENTRIES)[0], len(read(MAX_HASHED_ENTRIES)[1])) == (MAX_HASHED_ENTRIES, MAX_HASHED_ENTRIES)
    assert (read(MAX_HASHED_ENTRIES + 1)[0], len(read(MAX_HASHED_ENTRIES + 1)[1])) == (0, MAX_HASHED_ENTRIES + 1)


def namespaces(count: int) -> str:
    return "".join(f" xmlns:n{number}='https://example.com/{'x' * 100}/{number}'" for number in range(count))


@pytest.mark.parametrize("count", [30_000, 40])
def test_entries_with_many_namespaces_are_not_hashed(count: int) -> None:
    text = f"<rss version='2.0'{namespaces(count)}><channel><title>T</title>{'<item/>' * 100}</channel></rss>"
    began_s = time.process_time()
    feed = fast_parser.parse(text, url=URL, language="", previous=NO_PREVIOUS)
    assert feed
    assert (len(feed.element_hashes), len(feed.entries)) == (0, 100)
    assert time.process_time() - began_s < 2


def test_a_state_without_element_hashes_skips_nothing() -> None:
    state = detect_entry_changes(None, parse(rss([item("a")]), url=URL, headers={}), url=URL, now_s=NOW_S).state
    assert state.previous_document().fingerprints == {}
