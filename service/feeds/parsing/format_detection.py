"""Parses feed documents of any format, from bytes to a :class:`ParsedFeed`; runs in the ``sandbox``.

The module decodes the document, determines the format by the root element, and calls the parser for that format:

- JSON Feed: ``json_feed``
- RSS and Atom: ``fast_parser``, and if that returns None, ``feedparser_adapter``
"""

import re
from collections.abc import Mapping

from service.errors import EmptyBody, ListOfFeeds, NotAFeed
from service.feeds.entries.unchanged_entries import PreviousDocument
from service.feeds.parsing import fast_parser, feedparser_adapter, json_feed
from service.feeds.parsing.charset import decode_document
from service.model import ParsedFeed

_NAME = re.compile(r"<(?:[A-Za-z_][\w.-]{0,40}:)?([A-Za-z_][\w.-]{0,40})")
# White space, comments, processing instructions and declarations before the root element; a DOCTYPE may have an
# internal subset. One that is not closed extends to the end of the text.
_PROLOG = re.compile(
    r"(?:[\ufeff\0 \t\r\n\f]++|<!(?=--).*?(?:-->|\Z)|<(?=\?).*?(?:\?>|\Z)"
    r"|<!(?=[^>\[]*+\[).*?(?:\].*?(?:>|\Z)|\Z)|<![^>]*+(?:>|\Z))*+",
    re.DOTALL,
)


def root_element(text: str) -> str | None:
    """Return the local name of the root element of the document ``text``, in lower case.

    The result is "{" for JSON, "" for a text without a root element, and None for an empty text.
    """
    prolog = _PROLOG.match(text)
    place = prolog.end() if prolog else 0
    if place == len(text):
        return None
    name = _NAME.match(text, place)
    if name:
        return name[1].lower()
    return "{" if text[place] == "{" else ""


_FEED_ROOTS = {"rss", "feed", "rdf", "channel"}
_FEED_WITHIN = re.compile(r"<(?:[A-Za-z_][\w.-]{0,40}:)?(?:rss|feed|rdf)[\s>]", re.IGNORECASE)
_JUNK_CHARS = 64 * 1024


def parse(body: bytes, *, url: str, headers: Mapping[str, str], previous: PreviousDocument | None = None) -> ParsedFeed:
    """Return the feed in ``body``, which was fetched from ``url`` with the response headers ``headers``.

    - Links are absolute, texts are truncated, and implausible dates are None.
    - If there are more than 500 entries, only the newest are returned.
    - ``previous`` contains the hashes of the previous document's entries. If it is given, the result may omit entries
      that have not changed. The result then usually contains a hash of each entry's XML element.

    Raises :class:`EmptyBody` for an empty document, :class:`ListOfFeeds` for an OPML file, :class:`BrokenFeed` for an
    unreadable feed, and :class:`NotAFeed` for any other document.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    text = decode_document(body, lowered.get("content-type", ""))
    root = root_element(text)
    if root is None:
        raise EmptyBody("The document is empty. Please check the address, or try again later.")
    if root == "{":
        return json_feed.parse(text, url=url)
    if root == "opml":
        raise ListOfFeeds("The document is a list of feeds (OPML), not a feed itself: import it.")
    if root not in _FEED_ROOTS:
        # Some servers print warnings before the feed.
        found = None if root == "html" else _FEED_WITHIN.search(text, 0, _JUNK_CHARS)
        if not found:
            raise NotAFeed("The document is not a feed.")
        text = text[found.start() :]
    language = lowered.get("content-language", "")
    feed = fast_parser.parse(text, url=url, language=language, previous=previous)
    return feed or feedparser_adapter.parse(text, url=url, language=language)
