"""Autodiscovery of the feeds that a page links to with ``<link rel=alternate>``; runs in the ``sandbox``.

For pages without such links, ``feed_url_guesses`` guesses the feed URLs.
"""

from urllib.parse import urljoin

from lxml import html

from service.errors import BadUrl
from service.feeds.canonical_urls import canonical_url
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


def find_feed_links(body: bytes, *, url: str) -> tuple[FeedLink, ...]:
    """Return at most 20 feeds that the page at ``url`` links to with ``<link rel=alternate>``, in document order.

    Links with an invalid URL are omitted. The result is empty if there are no links to feeds, for example because the
    document is not HTML.
    """
    page = parse_html(decode_html(body, ""))
    if page is None:
        return ()
    base = urljoin(url, next((base.get("href") or "" for base in page.iter("base")), ""))
    found: dict[str, FeedLink] = {}
    for link in page.iter("link"):
        if target := _feed_url(link, base):
            found.setdefault(target, FeedLink(target, one_line(link.get("title") or "", FIELD_CHARS)))
    return tuple(found.values())[:MAX_LINKS]


def _feed_url(link: html.HtmlElement, base: str) -> str | None:
    kind = (link.get("type") or "").partition(";")[0].strip().lower()
    relations = (link.get("rel") or "").lower().split()
    target = (link.get("href") or "").strip()
    if "alternate" not in relations or kind not in _FEED_TYPES or not target:
        return None
    try:
        return canonical_url(urljoin(base, target))
    except (BadUrl, ValueError):
        return None
