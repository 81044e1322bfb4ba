"""Discovery of the feeds that a page links to."""

import pytest

from service.feeds.pages.feed_autodiscovery import find_feeds
from service.model import FeedLink
from tests.support.feed_documents import page

URL = "https://example.com/blog/"


def feed_urls(head: str) -> list[str]:
    return [link.url for link in find_feeds(f"<html><head>{head}</head><body></body></html>".encode(), url=URL)[0]]


def test_every_type_of_feed_link_is_found_with_its_title() -> None:
    body = (
        b'<LINK REL="alternate" TYPE="application/rss+xml; charset=utf-8" TITLE="All &amp; every" HREF="/all">'
        b'<link rel="alternate home" type="application/atom+xml" href="atom.xml">'
        b'<link rel="alternate" type="application/feed+json" href="https://example.org/feed.json">'
    )
    assert find_feeds(body, url=URL)[0] == (
        FeedLink("https://example.com/all", "All & every"),
        FeedLink("https://example.com/blog/atom.xml"),
        FeedLink("https://example.org/feed.json"),
    )


@pytest.mark.parametrize(
    "head",
    [
        '<link rel="alternate" hreflang="de" href="/de">',
        '<link rel="stylesheet" type="text/css" href="/x.css">',
        '<link rel="alternate" type="application/rss+xml">',
        '<link rel="alternate" type="application/rss+xml" href="javascript:alert(1)">',
        '<link rel="alternate" type="application/rss+xml" href="http://[">',
        '<!-- <link rel="alternate" type="application/rss+xml" href="/old"> -->',
    ],
)
def test_other_links_are_ignored(head: str) -> None:
    assert feed_urls(head) == []


def test_links_are_resolved_against_the_base_element() -> None:
    head = '<base href="https://cdn.example.com/x/"><link rel="alternate" type="application/rss+xml" href="feed">'
    assert feed_urls(head) == ["https://cdn.example.com/x/feed"]


def test_feed_links_are_distinct_and_at_most_twenty() -> None:
    assert len(find_feeds(page(["/a", "/a", *map(str, range(50))]), url=URL)[0]) == 20


@pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", b"hello", b"<?xml version='1.0' encoding='nonsense'?><html/>"])
def test_a_document_other_than_html_has_no_feed_links(body: bytes) -> None:
    assert find_feeds(body, url=URL) == ((), ())
