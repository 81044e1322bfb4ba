"""The request handlers of a parser process: change detection, and parsing of documents of unknown type.

The *baseline* of a feed or page is the encoded state by which changes are detected. It is an
``entry_change_detection.FeedState`` for a feed and a ``page_change_detection.PageState`` for a page.

A baseline that was written by another release is discarded if it cannot be decoded. In this case nothing is reported as
new, as at a first poll.
"""

from typing import TypeVar

import msgspec

from service.errors import NotAFeed
from service.feeds.canonical_urls import selector_of, without_selector
from service.feeds.entries.entry_change_detection import FeedState, detect_entry_changes
from service.feeds.pages.content_extraction import extract_article, parse_page
from service.feeds.pages.feed_autodiscovery import find_feeds
from service.feeds.pages.page_change_detection import PageState, detect_page_changes
from service.feeds.parsing.format_detection import parse
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, ParsedDocument, ParseDocument
from service.model import Change, Entry, FeedLink, ParsedFeed


def detect_changes(request: DetectChanges) -> DetectionResult:
    """Compare the documents of a feed or page with its baseline; return the changes and the next baseline.

    The baseline is the encoded state of the feed or page after the last comparison. Raises a subclass of
    :class:`FeedError` if a document cannot be parsed.
    """
    if request.kind == "article":
        (document,) = request.documents
        return DetectionResult(article=extract_article(document.body, headers=document.headers))
    return _detect_in_page(request) if request.kind == "page" else _detect_in_feed(request)


def _detect_in_feed(request: DetectChanges) -> DetectionResult:
    state = _decode_baseline(request.baseline, FeedState)
    changes: dict[str, Change] = {}
    latest: tuple[Entry, ...] = ()
    feed, older_url = ParsedFeed(), ""
    for index, document in enumerate(request.documents):
        try:
            previous = (state or FeedState(request.now_s)).previous_document()
            feed = parse(document.body, url=document.url, headers=document.headers, previous=previous)
        except NotAFeed:
            links, guesses = find_feeds(document.body, url=document.url)
            if request.baseline or not (links or (guesses and document.is_page)):
                raise
            return DetectionResult(links=links, guesses=guesses)
        detected = detect_entry_changes(state, feed, url=document.url, now_s=request.now_s)
        state, latest = detected.state, latest or detected.latest
        if index == 0 and detected.gap and not document.partial:
            older_url = feed.older_url
        changes |= {entry.key: Change("addition", entry) for entry in detected.new}
        for entry in detected.edited:
            # An edit of an entry that is new in this request is reported as the addition of the edited entry.
            kind = changes[entry.key].kind if entry.key in changes else "replacement"
            changes[entry.key] = Change(kind, entry)
    return DetectionResult(
        baseline=msgspec.msgpack.encode(state) if state else b"",
        changes=tuple(changes.values()),
        latest=latest,
        title=feed.title,
        link=feed.link,
        polling_hints=feed.polling_hints,
        hubs=feed.hubs,
        topic=feed.topic,
        older_url=older_url,
        language=feed.language,
        metadata=feed.metadata,
    )


def _detect_in_page(request: DetectChanges) -> DetectionResult:
    state = _decode_baseline(request.baseline, PageState)
    url, selector, title = without_selector(request.url), selector_of(request.url), ""
    changes: tuple[Change, ...] = ()
    latest: tuple[Entry, ...] = ()
    for document in request.documents:
        page = parse_page(document.body, headers=document.headers, selector=selector)
        detected = detect_page_changes(state, page, url=url, now_s=request.now_s, is_selected=bool(selector))
        state, title, latest = detected.state, page.title, latest or detected.latest
        changes += detected.changes
    baseline = msgspec.msgpack.encode(state) if state else b""
    return DetectionResult(
        baseline=baseline, changes=changes, latest=() if request.baseline else latest, title=title, link=url
    )


_State = TypeVar("_State", FeedState, PageState)


def _decode_baseline(baseline: bytes, kind: type[_State]) -> _State | None:
    """Decode ``baseline``, the state of a feed or page after the last comparison. ``kind`` is the type of the state.

    The result is None if ``baseline`` is empty, or if it cannot be decoded because another release has encoded it.
    """
    try:
        return msgspec.msgpack.decode(baseline, type=kind) if baseline else None
    except msgspec.DecodeError:
        return None


def parse_document(request: ParseDocument) -> ParsedDocument:
    """Parse the document in ``request``; return its feed, or its page and the feeds to which the page links.

    If the request has a selector, the document is always parsed as a page. Raises:

    - :class:`EmptyBody` if there is no text, if no text matches the selector, or if there is only a login form
    - :class:`BrokenFeed` for an unreadable feed
    - :class:`ListOfFeeds` for an OPML file
    - :class:`NotAFeed` for a document that is neither a feed nor a page
    """
    document = request.document
    links: tuple[FeedLink, ...] = ()
    if not request.selector:
        try:
            return ParsedDocument(feed=parse(document.body, url=document.url, headers=document.headers))
        except NotAFeed:
            links, _ = find_feeds(document.body, url=document.url)
            if not links and not document.is_page:
                raise
    return ParsedDocument(
        page=parse_page(document.body, headers=document.headers, selector=request.selector), links=links
    )
