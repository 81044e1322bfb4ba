"""Entries that a channel's last document held already are not read again, unless something follows from them."""

import time
from collections.abc import Callable

import pytest

from service.feeds.entries.entry_identity import IdentityState, detect_entry_changes
from service.feeds.entries.unchanged_entries import MAX_HASHED_ENTRIES, PreviousDocument
from service.feeds.parsing import fast_parser
from service.feeds.parsing.feed_parser import parse
from service.model import ParsedEntry, ParsedFeed
from tests.support.feed_documents import atom, item, rss, typical_atom, typical_rss

URL = "https://example.com/feed"
NOW_S = 1_800_000_000.0
NO_PREVIOUS = PreviousDocument({}, b"")


def polled(body: bytes, state: IdentityState) -> ParsedFeed:
    """Return what is read of a document by those who remember this."""
    return parse(body, url=URL, headers={}, previous=state.previous_document())


def after(body: bytes) -> IdentityState:
    """Return what is remembered after the first poll."""
    return detect_entry_changes(
        None, parse(body, url=URL, headers={}, previous=NO_PREVIOUS), url=URL, now_s=NOW_S
    ).state


@pytest.mark.parametrize("build", [typical_rss, typical_atom])
def test_only_what_is_new_is_read(build: Callable[[range], bytes]) -> None:
    feed = polled(build(range(1, 6)), after(build(range(5))))
    assert (len(feed.element_hashes), [entry.title[:25] for entry in feed.entries]) == (
        5,
        ["How I bake bread, part 5 "],
    )


def test_an_edited_entry_is_read() -> None:
    before, edited = [item("a"), item("b")], [item("a"), item("b", title="Other")]
    assert polled(rss(edited), after(rss(before))).entries == (edited[1],)


def test_all_is_read_if_the_site_is_another() -> None:
    feed = polled(rss([item("a")], link="https://other.example/"), after(rss([item("a")])))
    assert len(feed.entries) == 1
    assert feed.element_hashes == ()


def test_all_is_read_if_a_title_comes_after_what_would_be_passed_over() -> None:
    text = atom([item("a")]).decode().replace("<title>Example</title>", "", 1)
    late = text.replace("</feed>", "<title>Example</title></feed>").encode()
    feed = polled(late, after(late))
    assert (feed.title, len(feed.entries)) == ("Example", 1)


def test_an_entry_whose_links_lead_elsewhere_because_their_base_does_is_read() -> None:
    based = atom([item("a", link="a")]).decode().replace("<feed", "<feed xml:base='https://example.com/{}/'").format
    assert len(polled(based("b").encode(), after(based("a").encode())).entries) == 1
    assert len(polled(based("a").encode(), after(based("a").encode())).entries) == 0


def test_what_feedparser_reads_has_no_marks() -> None:
    broken = rss([item("a")]).replace(b"</rss>", b"")
    assert polled(broken, after(rss([item("a")]))).element_hashes == ()


@pytest.mark.parametrize("written", ["<item><title>{}</title></item>", "<item guid='{}'/>"])
def test_long_documents_have_no_marks(written: str) -> None:
    def read(count: int) -> tuple[int, tuple[ParsedEntry, ...]]:
        items = "".join(map(written.format, range(count)))
        text = f"<rss version='2.0'><channel><title>T</title>{items}</channel></rss>"
        feed = fast_parser.parse(text, url=URL, language="", previous=NO_PREVIOUS)
        assert feed
        return len(feed.element_hashes), feed.entries

    assert (read(MAX_HASHED_ENTRIES)[0], len(read(MAX_HASHED_ENTRIES)[1])) == (MAX_HASHED_ENTRIES, MAX_HASHED_ENTRIES)
    assert (read(MAX_HASHED_ENTRIES + 1)[0], len(read(MAX_HASHED_ENTRIES + 1)[1])) == (0, MAX_HASHED_ENTRIES + 1)


def spaces(count: int) -> str:
    return "".join(f" xmlns:n{number}='https://example.com/{'x' * 100}/{number}'" for number in range(count))


@pytest.mark.parametrize(
    ("around", "entry"),
    [
        (spaces(30_000), "<item/>"),
        (spaces(40), "<item/>"),
        ("", "<item " + " ".join(f"a{number}=''" for number in range(30)) + "/>"),
    ],
)
def test_entries_with_countless_namespaces_or_attributes_are_not_marked(around: str, entry: str) -> None:
    text = f"<rss version='2.0'{around}><channel><title>T</title>{entry}{'<item/>' * 99}</channel></rss>"
    began_s = time.process_time()
    feed = fast_parser.parse(text, url=URL, language="", previous=NO_PREVIOUS)
    assert feed
    assert (len(feed.element_hashes), len(feed.entries)) == (0, 100)
    assert time.process_time() - began_s < 2


def test_a_state_without_marks_knows_nothing_as_familiar() -> None:
    state = detect_entry_changes(None, parse(rss([item("a")]), url=URL, headers={}), url=URL, now_s=NOW_S).state
    assert state.previous_document().fingerprints == {}
