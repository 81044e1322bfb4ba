"""What documents of a channel say that is new: parse, identify, compare. Pure; runs in a killable child.

What is remembered of a channel is the state of ``identity`` for a feed, of ``compare`` for a page. What
another version of Coronet wrote and this one cannot read is forgotten: like a first poll, that tells nothing.
"""

from typing import TypeVar

import msgspec

from service.errors import NotAFeed
from service.feeds.entries.entry_identity import IdentityState, detect_entry_changes
from service.feeds.pages.extraction import feed_links, parse_page
from service.feeds.pages.page_diff import PageState, detect_page_changes
from service.feeds.parsing.feed_parser import parse
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, ParsedDocument, ParseDocument
from service.feeds.urls import selector_of, without_selector
from service.model import Change, Entry, FeedLink, ParsedFeed


def detect_changes(job: DetectChanges) -> DetectionResult:
    """Return what the documents say. Raises :class:`FeedError` subclasses."""
    return _examine_page(job) if job.kind == "page" else _examine_feed(job)


def _examine_feed(job: DetectChanges) -> DetectionResult:
    state = recalled(job.memory, IdentityState)
    changes: dict[str, Change] = {}
    latest: tuple[Entry, ...] = ()
    feed, older = ParsedFeed(), ""
    for place, document in enumerate(job.documents):
        try:
            familiar = (state or IdentityState(job.now_s)).familiar()
            feed = parse(document.body, url=document.url, headers=document.headers, familiar=familiar)
        except NotAFeed:
            links = feed_links(document.body, url=document.url)
            if job.memory or not links:
                raise
            return DetectionResult(links=links)
        decision = detect_entry_changes(state, feed, url=document.url, now_s=job.now_s)
        state, latest = decision.state, latest or decision.latest
        if place == 0 and decision.gap and not document.partial:
            older = feed.older_url
        changes |= {entry.key: Change("addition", entry) for entry in decision.new}
        for entry in decision.edited:
            # What was not told yet is told as it is now.
            kind = changes[entry.key].kind if entry.key in changes else "replacement"
            changes[entry.key] = Change(kind, entry)
    return DetectionResult(
        memory=msgspec.msgpack.encode(state) if state else b"",
        changes=tuple(changes.values()),
        latest=latest,
        title=feed.title,
        link=feed.link,
        wishes=feed.polling_hints,
        hubs=feed.hubs,
        topic=feed.topic,
        older=older,
        language=feed.language,
        imprint=feed.metadata,
    )


def _examine_page(job: DetectChanges) -> DetectionResult:
    state = recalled(job.memory, PageState)
    url, title = without_selector(job.url), ""
    changes: tuple[Change, ...] = ()
    latest: tuple[Entry, ...] = ()
    for document in job.documents:
        page = parse_page(document.body, headers=document.headers, selector=selector_of(job.url))
        decision = detect_page_changes(state, page, url=url, now_s=job.now_s)
        state, title, latest = decision.state, page.title, latest or decision.latest
        changes += decision.changes
    memory = msgspec.msgpack.encode(state) if state else b""
    return DetectionResult(memory=memory, changes=changes, latest=() if job.memory else latest, title=title, link=url)


_State = TypeVar("_State", IdentityState, PageState)


def recalled(memory: bytes, kind: type[_State]) -> _State | None:
    """Return what is remembered, or None if that is nothing, or nothing this version can read."""
    try:
        return msgspec.msgpack.decode(memory, type=kind) if memory else None
    except msgspec.DecodeError:
        return None


def parse_document(job: ParseDocument) -> ParsedDocument:
    """Return the feed, or the page with the feeds that it names. A selector makes a page of anything.

    Raises :class:`EmptyBody`, :class:`BrokenFeed`, :class:`ListOfFeeds`, or :class:`NotAFeed` for what is neither.
    """
    document = job.document
    links: tuple[FeedLink, ...] = ()
    if not job.selector:
        try:
            return ParsedDocument(feed=parse(document.body, url=document.url, headers=document.headers))
        except NotAFeed:
            links = feed_links(document.body, url=document.url)
            if not links and not document.is_page:
                raise
    return ParsedDocument(page=parse_page(document.body, headers=document.headers, selector=job.selector), links=links)
