"""The fuzz targets: functions that take bytes, and raise only if a property is violated."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from service.errors import FeedError
from service.feeds.entries.entry_change_detection import FeedState, detect_entry_changes
from service.feeds.pages.content_extraction import parse_page
from service.feeds.pages.page_change_detection import PageState, detect_page_changes
from service.feeds.parsing import fast_parser, feedparser_adapter
from service.feeds.parsing.field_limits import MAX_ENTRIES
from service.feeds.parsing.format_detection import parse
from service.feeds.sandbox.protocol import encode_frame
from service.model import ParsedFeed

URL = "https://example.com/blog/feed"
NOW_S = 1_710_000_000.0
CUT = b"\n%%\n"
"""Stands between two documents of one input."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_STATE_BYTES = 66 * 1024


def parse_target(data: bytes) -> None:
    """Check that only FeedError is raised, texts are valid XML, and the fast parser's result equals feedparser's."""
    feed = _feed(data)
    assert len(feed.entries) <= MAX_ENTRIES
    for text in _texts(msgspec.to_builtins(feed)):
        assert not _NOT_XML.search(text), text
    text = data.decode("utf-8", "replace")
    fast = fast_parser.parse(text, url=URL, language="")
    assert fast is None or fast == feedparser_adapter.parse(text, url=URL, language="")


def identity_target(data: bytes) -> None:
    """Check that nothing is new at first, in an equal document or in one that returns, and that the state is small.

    Entries without distinct ids are identified by their other fields. An edit of such an entry makes it a new one, and
    if its first version returns next to others that share the remaining fields, it is reported again. Entries that
    were not edited stay known.
    """
    body, _, later_body = data.partition(CUT)
    first = _feed(body)
    begun = detect_entry_changes(None, first, url=URL, now_s=NOW_S)
    assert not begun.new
    assert not begun.edited
    again = detect_entry_changes(begun.state, first, url=URL, now_s=NOW_S + 60)
    assert not again.new, again.new
    assert not again.edited, again.edited
    stored = msgspec.msgpack.encode(again.state)
    assert len(stored) <= _MAX_STATE_BYTES
    second = _feed(later_body)
    after = detect_entry_changes(msgspec.msgpack.decode(stored, type=FeedState), second, url=URL, now_s=NOW_S + 120)
    keys = [entry.key for entry in (*after.new, *after.edited)]
    assert len(keys) == len(set(keys)), keys
    last = detect_entry_changes(after.state, second, url=URL, now_s=NOW_S + 180)
    assert not last.new, last.new
    assert not last.edited, last.edited
    if _has_own_ids(first) and _has_own_ids(second):
        back = detect_entry_changes(last.state, first, url=URL, now_s=NOW_S + 240)
        assert not back.new, back.new


def page_target(data: bytes) -> None:
    """Check that the first and an equal page have no changes, and that the state can be stored."""
    first, _, second = data.partition(CUT)
    state: PageState | None = None
    for number, body in enumerate((first, first, second, first, second)):
        page = parse_page(body, headers={})
        for text in _texts(msgspec.to_builtins(page)):
            assert not _NOT_XML.search(text), text
        decision = detect_page_changes(state, page, url=URL, now_s=NOW_S + 60.0 * number)
        assert number > 1 or not decision.changes, decision.changes
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(decision.state), type=PageState)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "parse": parse_target,
    "identity": identity_target,
    "page": page_target,
}


def run(target: str, data: bytes) -> None:
    """Run the target with one input; a FeedError is a valid result."""
    try:
        TARGETS[target](data)
    except FeedError as error:
        encode_frame(error.code)


def name_of(data: bytes) -> str:
    """Return the file name of an input in the corpus."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()[:16]


def _feed(body: bytes) -> ParsedFeed:
    return parse(body, url=URL, headers={})


def _has_own_ids(feed: ParsedFeed) -> bool:
    ids = [entry.id for entry in feed.entries]
    return all(ids) and len(set(ids)) == len(ids)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return _texts(list(value.values()))
    if isinstance(value, list | tuple):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []
