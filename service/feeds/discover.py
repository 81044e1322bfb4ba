"""Autodiscovery: the feeds that an HTML page names; runs in a killable child (``sandbox``)."""

from urllib.parse import urljoin

from lxml import html

from service.errors import BadUrl
from service.feeds.limits import FIELD_CHARS
from service.feeds.page import html_text, html_tree
from service.feeds.text import one_line
from service.feeds.urls import canonical_url
from service.model import FeedLink

MAX_LINKS = 20
_FEED_TYPES = {
    "application/rss+xml",
    "application/atom+xml",
    "application/rdf+xml",
    "application/feed+json",
    "application/json",
}


def feed_links(body: bytes, *, url: str) -> tuple[FeedLink, ...]:
    """Return the feeds named by the page's ``<link rel=alternate>``, in document order, at most 20.

    Links that are no usable URLs are left out. A document that is no HTML names none.
    """
    page = html_tree(html_text(body, ""))
    if page is None:
        return ()
    base = urljoin(url, next((base.get("href") or "" for base in page.iter("base")), ""))
    found: dict[str, FeedLink] = {}
    for link in page.iter("link"):
        target = _feed_url(link, base)
        if target and target not in found:
            found[target] = FeedLink(target, one_line(link.get("title") or "", FIELD_CHARS))
            if len(found) == MAX_LINKS:
                break
    return tuple(found.values())


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
