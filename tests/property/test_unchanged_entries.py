"""Skipping unchanged entries does not affect any result."""

import re
from typing import Any

import msgspec
from hypothesis import given as for_any
from hypothesis import settings
from hypothesis import strategies as st

from service.feeds.entries.entry_change_detection import EntryChanges, FeedState, detect_entry_changes
from service.feeds.entries.entry_hashes import site_hash
from service.feeds.entries.unchanged_entries import PreviousDocument
from service.feeds.parsing import fast_parser
from service.feeds.parsing.format_detection import parse
from service.model import ParsedEntry, ParsedFeed
from tests.property.test_fast_parser import FIELDS, LINKS, atom, attributes, rdf, rss
from tests.support.misbehaving_publisher import HABITS, MISBEHAVIOUR, Publisher

URL = "https://example.com/feed"
START_S = 1_700_000_000.0
HOUR_S = 3600.0
_ROOT = re.compile("^<[a-zA-Z:]+")

POOL = st.lists(FIELDS, min_size=2, max_size=4)
GIVEN = attributes(xml_base=LINKS, x_y=st.just("z"))
BUILD = st.sampled_from((rss, atom, rdf))


def document(data: st.DataObject, pool: list[str]) -> str:
    """Return a document with entries of the pool; the first one also describes the feed."""
    about, *entries = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
    late = data.draw(st.sampled_from(("", "", "<title>Late</title>", "<x:y><title>Later</title></x:y>")))
    text: str = data.draw(BUILD)([about, *entries], data.draw(GIVEN))
    base = data.draw(st.sampled_from(("", " xml:base='https://example.com/a/'", " xml:base='https://example.com/b/'")))
    text = _ROOT.sub(rf"\g<0>{base}", text)
    end = max(text.rfind("</channel>"), text.rfind("</feed>"))
    return text[:end] + late + text[end:]


def read(text: str, previous: PreviousDocument | None = None) -> ParsedFeed | None:
    return fast_parser.parse(text, url=URL, language="", previous=previous)


@for_any(POOL, st.data())
def test_skipped_entries_equal_those_of_a_full_parse(pool: list[str], data: st.DataObject) -> None:
    before, text = read(document(data, pool), PreviousDocument({}, b"")), document(data, pool)
    if before is None:
        return
    known = dict(zip(before.element_hashes, before.entries, strict=True))
    previous = PreviousDocument(dict.fromkeys(known, b"known"), site_hash(URL, before.link))
    feed = read(text, previous)
    assert (None if feed is None else completed(feed, known)) == read(text)


def completed(feed: ParsedFeed, known: dict[bytes, ParsedEntry]) -> ParsedFeed:
    """Return the feed with the skipped entries, and without element hashes."""
    unread = iter(feed.entries)
    entries = (
        tuple(known.get(each) or next(unread) for each in feed.element_hashes) if feed.element_hashes else feed.entries
    )
    return msgspec.structs.replace(feed, entries=entries, element_hashes=())


@settings(max_examples=40)
@for_any(
    st.sampled_from(HABITS),
    st.lists(st.tuples(st.sampled_from(list(MISBEHAVIOUR)), st.integers(0, 2))),
    st.integers(0, 2**32),
)
def test_skipping_does_not_affect_detected_changes(habit: str, polls: list[tuple[str, int]], seed: int) -> None:
    publisher = Publisher(habit, seed)
    publisher.write(6)
    state: FeedState | None = None
    state_in_full: FeedState | None = None
    for hour, (misbehaviour, written) in enumerate([("nothing", 0), *polls]):
        publisher.misbehave(misbehaviour)
        publisher.write(written)
        body, content_type = publisher.document()
        how: Any = {"url": URL, "headers": {"content-type": content_type}}
        now_s = START_S + hour * HOUR_S
        previous = (state or FeedState(now_s)).previous_document()
        detected = detect_entry_changes(state, parse(body, **how, previous=previous), url=URL, now_s=now_s)
        in_full = detect_entry_changes(state_in_full, parse(body, **how), url=URL, now_s=now_s)
        assert without_element_hashes(detected) == without_element_hashes(in_full)
        state, state_in_full = detected.state, in_full.state


def without_element_hashes(detected: EntryChanges) -> EntryChanges:
    return msgspec.structs.replace(detected, state=msgspec.structs.replace(detected.state, element_hashes=b""))
