"""Lists of subscriptions as OPML 2.0: their values, and how they are written. ``opml_parser`` reads them."""

from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape, quoteattr

import msgspec

from service.feeds.parsing.html_text import one_line
from service.feeds.parsing.limits import FIELD_CHARS, unique_names

MAX_OPML_BYTES = 5 * 1024 * 1024
PAGE = "page"
"""The ``type`` of an outline that is a page rather than a feed; other readers pass over it."""


class OpmlSubscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feed that somebody reads: its canonical URL, what they call it, and the folders that it is in.

    ``page``: it is no feed but a page that they watch, or a part of one.
    """

    url: str
    title: str = ""
    tags: tuple[str, ...] = ()
    page: bool = False


class OpmlDocument(msgspec.Struct, frozen=True):
    """What a file lists, each feed once, in its order; and what is wrong with it, each with its line."""

    feeds: tuple[OpmlSubscription, ...]
    problems: tuple[str, ...] = ()


def write(title: str, feeds: Iterable[OpmlSubscription]) -> bytes:
    """Return the feeds as OPML 2.0: those without a tag first, then a folder per tag.

    A feed with several tags is in several folders; the parser makes it one again.
    """
    folders: dict[str, list[OpmlSubscription]] = {}
    for feed in feeds:
        for tag in unique_names(feed.tags) or ("",):
            folders.setdefault(tag, []).append(feed)
    lines = [
        "<?xml version='1.0' encoding='utf-8'?>",
        '<opml version="2.0">',
        f"  <head>\n    <title>{escape(one_line(title, FIELD_CHARS))}</title>\n  </head>",
        "  <body>",
        *(_outline(feed, "    ") for feed in folders.pop("", ())),
        *(line for tag, tagged in folders.items() for line in _folder(tag, tagged)),
        "  </body>",
        "</opml>\n",
    ]
    return "\n".join(lines).encode()


def _folder(tag: str, feeds: Iterable[OpmlSubscription]) -> Iterator[str]:
    yield f"    <outline text={quoteattr(tag)}>"
    yield from (_outline(feed, "      ") for feed in feeds)
    yield "    </outline>"


def _outline(feed: OpmlSubscription, indent: str) -> str:
    shown = quoteattr(one_line(feed.title, FIELD_CHARS) or feed.url)
    kind, address = (PAGE, "url") if feed.page else ("rss", "xmlUrl")
    return f'{indent}<outline text={shown} title={shown} type="{kind}" {address}={quoteattr(feed.url)}/>'
