"""Data types for subscription lists, and a writer for lists in OPML 2.0. The parser is in ``opml_parser``."""

from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape, quoteattr

import msgspec

from service.feeds.parsing.field_limits import FIELD_CHARS, NAME_CHARS
from service.feeds.parsing.html_text import one_line

MAX_OPML_BYTES = 5 * 1024 * 1024
MAX_OUTLINES = 12_000
"""Maximum number of outlines that are read: 10,000 feeds and their folders."""
PAGE = "page"
"""The ``type`` of an outline that describes a page instead of a feed. Other programs ignore such outlines."""


class OpmlSubscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One subscription in a subscription list.

    - ``url`` is the canonical URL.
    - ``title`` is the user's title for the feed or page.
    - ``folder`` is the name of the folder that contains the subscription, of at most ``NAME_CHARS`` characters; "" if
      none does.
    - ``page`` is true for a subscription to a page or a part of a page, and false for one to a feed.
    """

    url: str
    title: str = ""
    page: bool = False
    folder: str = ""


class OpmlDocument(msgspec.Struct, frozen=True):
    """The content of an OPML file: its distinct subscriptions in document order, and the problems found in the file.

    Each problem is a sentence that contains a line number. ``lines`` are the numbers of the lines with ``feeds``, in
    the same order; it is empty if they are not known.
    """

    feeds: tuple[OpmlSubscription, ...]
    problems: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()


def write(title: str, feeds: Iterable[OpmlSubscription]) -> bytes:
    """Return the subscriptions ``feeds`` as an OPML 2.0 document with the given ``title``.

    Subscriptions without a folder come first, followed by the folders as outlines that contain their subscriptions.
    Folders whose names differ only in case are one.
    """
    folders: dict[str, list[OpmlSubscription]] = {}
    names: dict[str, str] = {}
    for feed in feeds:
        name = one_line(feed.folder, NAME_CHARS)
        folders.setdefault(names.setdefault(name.casefold(), name), []).append(feed)
    lines = [
        "<?xml version='1.0' encoding='utf-8'?>",
        '<opml version="2.0">',
        f"  <head>\n    <title>{escape(one_line(title, FIELD_CHARS))}</title>\n  </head>",
        "  <body>",
        *(_format_outline(feed, "    ") for feed in folders.pop("", ())),
        *(line for name, contained in folders.items() for line in _format_folder(name, contained)),
        "  </body>",
        "</opml>\n",
    ]
    return "\n".join(lines).encode()


def _format_folder(name: str, feeds: Iterable[OpmlSubscription]) -> Iterator[str]:
    yield f"    <outline text={quoteattr(name)}>"
    yield from (_format_outline(feed, "      ") for feed in feeds)
    yield "    </outline>"


def _format_outline(feed: OpmlSubscription, indent: str) -> str:
    shown = quoteattr(one_line(feed.title, FIELD_CHARS) or feed.url)
    kind, address = (PAGE, "url") if feed.page else ("rss", "xmlUrl")
    return f'{indent}<outline text={shown} title={shown} type="{kind}" {address}={quoteattr(feed.url)}/>'
