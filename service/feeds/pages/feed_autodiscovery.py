"""Autodiscovery of the feeds of a page, from its site's rule and from its links; runs in the ``sandbox``.

For pages that name no feed with ``<link rel=alternate>``, ``feed_url_guesses`` guesses the feed URLs.
"""

import contextlib
from urllib.parse import urljoin

from lxml import html

from service.errors import BadUrl
from service.feeds.canonical_urls import canonical_url
from service.feeds.pages.feed_url_guesses import FEED_URL, probable_feeds, site_feeds
from service.feeds.pages.page_lines import decode_html, parse_html
from service.feeds.parsing.field_limits import FIELD_CHARS
from service.feeds.parsing.html_text import one_line
from service.model import FeedLink

MAX_LINKS = 20
_FEED_TYPES = {
    "application/rss+xml",
    "application/atom+xml",
    "application/rdf+xml",
    "application/feed+json",
    "application/json",
}


def find_feeds(body: bytes, *, url: str) -> tuple[tuple[FeedLink, ...], tuple[str, ...]]:
    """Return (links, guesses): the feeds of the page at ``url``, and URLs at which it may have one.

    The links are those of its site's rule, or at most 20 ``<link rel=alternate>`` in document order. If there are none,
    there may be up to two guesses. Links with an invalid URL are omitted. Both are empty if the document is not HTML.
    """
    text = decode_html(body, "")
    page = parse_html(text)
    if page is None:
        return (), ()
    with contextlib.suppress(BadUrl):
        if feeds := site_feeds(url, text):
            return feeds, ()
    base = urljoin(url, next((base.get("href") or "" for base in page.iter("base")), ""))
    found: dict[str, FeedLink] = {}
    for link in page.iter("link"):
        is_feed = "alternate" in (link.get("rel") or "").lower().split() and _has_feed_type(link)
        if is_feed and (target := _target(link, base)):
            found.setdefault(target, FeedLink(target, one_line(link.get("title") or "", FIELD_CHARS)))
    if found:
        return tuple(found.values())[:MAX_LINKS], ()
    targets = ((link, _target(link, base)) for link in page.iter("a"))
    likely = (target for link, target in targets if target and (_has_feed_type(link) or FEED_URL.fullmatch(target)))
    return (), probable_feeds(likely, url)


def _has_feed_type(link: html.HtmlElement) -> bool:
    return (link.get("type") or "").partition(";")[0].strip().lower() in _FEED_TYPES


def _target(link: html.HtmlElement, base: str) -> str | None:
    target = (link.get("href") or "").strip()
    try:
        return canonical_url(urljoin(base, target)) if target else None
    except (BadUrl, ValueError):
        return None
