"""Small feed documents for everyone's tests: ``rss([item("a"), item("b")])`` and its likes."""

import datetime as dt
import email.utils
import json
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from service.model import ParsedEntry

_START_S = 1_700_000_000.0


def item(name: str, *, number: int = 0, **fields: str | float | tuple[str, ...] | None) -> ParsedEntry:
    """Return an entry with an id, link, title and summary made from ``name``, dated by ``number`` (hours)."""
    defaults = {
        "id": f"tag:example.com,2024:{name}",
        "link": f"https://example.com/{name}",
        "title": f"Title {name}",
        "summary": f"Summary of {name}.",
        "published": _START_S + 3600.0 * number,
    }
    return ParsedEntry(**{**defaults, **fields})  # type: ignore[arg-type]  # a test's mistake shows in its failure


def rss(entries: Sequence[ParsedEntry] = (), *, title: str = "Example", link: str = "https://example.com/") -> bytes:
    """Return an RSS 2.0 document, entries in the order given."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel>'
        f"{_tag('title', title)}{_tag('link', link)}<description/>{''.join(map(_rss_item, entries))}</channel></rss>"
    ).encode()


def atom(entries: Sequence[ParsedEntry] = (), *, title: str = "Example", link: str = "https://example.com/") -> bytes:
    """Return an Atom 1.0 document, entries in the order given."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
        f"{_tag('title', title)}<link href={quoteattr(link)}/>{_tag('id', link)}"
        f"{''.join(map(_atom_entry, entries))}</feed>"
    ).encode()


def json_feed(entries: Sequence[ParsedEntry] = (), *, title: str = "Example", link: str = "https://e.com/") -> bytes:
    """Return a JSON Feed 1.1 document, entries in the order given."""
    return json.dumps(
        {
            "version": "https://jsonfeed.org/version/1.1",
            "title": title,
            "home_page_url": link,
            "items": [
                {
                    "id": entry.id,
                    "url": entry.link,
                    "title": entry.title,
                    "content_html": entry.content or entry.summary,
                    "authors": [{"name": name} for name in entry.authors],
                    "tags": list(entry.tags),
                    "date_published": _iso(entry.published),
                }
                for entry in entries
            ],
        }
    ).encode()


def page(feeds: Sequence[str] = (), *, title: str = "A page") -> bytes:
    """Return an HTML page that names the RSS feeds at these URLs."""
    links = "".join(f'<link rel="alternate" type="application/rss+xml" href={quoteattr(url)}>' for url in feeds)
    return f"<!doctype html><html><head>{_tag('title', title)}{links}</head><body><p>Hello.</p></body></html>".encode()


def _tag(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>" if text else ""


def _rss_item(entry: ParsedEntry) -> str:
    date = "" if entry.published is None else email.utils.formatdate(entry.published, usegmt=True)
    enclosure = f"<enclosure url={quoteattr(entry.enclosure)} length='1' type='audio/mpeg'/>" if entry.enclosure else ""
    return (
        f"<item>{_tag('title', entry.title)}{_tag('link', entry.link)}"
        f'<guid isPermaLink="false">{escape(entry.id)}</guid>'
        f"{_tag('description', entry.summary)}{_tag('pubDate', date)}{enclosure}"
        f"{''.join(_tag('category', tag) for tag in entry.tags)}"
        f"{''.join(_tag('author', name) for name in entry.authors)}</item>"
    )


def _atom_entry(entry: ParsedEntry) -> str:
    return (
        f"<entry>{_tag('title', entry.title)}<link href={quoteattr(entry.link)}/>{_tag('id', entry.id)}"
        f'<summary type="html">{escape(entry.summary)}</summary>{_tag("published", _iso(entry.published) or "")}'
        f"{_tag('updated', _iso(entry.updated) or '')}"
        f"{''.join(f'<author><name>{escape(name)}</name></author>' for name in entry.authors)}"
        f"{''.join(f'<category term={quoteattr(tag)}/>' for tag in entry.tags)}</entry>"
    )


def _iso(unix_s: float | None) -> str | None:
    return None if unix_s is None else dt.datetime.fromtimestamp(unix_s, dt.UTC).isoformat()
