"""Reads the values of a well-formed feed as feedparser does: element names, attributes, texts, links and dates.

Each function returns the value that feedparser would return, or raises :class:`FeedparserRequired` if it cannot
reproduce this value.
"""

import contextlib
import datetime as dt
import re
from collections.abc import Sequence
from functools import lru_cache
from xml.sax.saxutils import escape

import feedparser.datetimes
import feedparser.urls
from feedparser.api import StrictFeedParser
from lxml import etree

from service.feeds.parsing.feedparser_adapter import to_unix_s
from service.feeds.parsing.field_limits import ABSOLUTE_URL, valid_time_s

_PREFIXES = {uri.lower(): prefix.lower() for uri, prefix in StrictFeedParser.namespaces.items() if uri}
_PREFIXES["http://backend.userland.com/rss2"] = ""  # to feedparser, any URI with "backend.userland.com/rss" is RSS
_METHOD = re.compile(r"_(?:start|end)_(\w+)")
FEEDPARSER_ELEMENTS = frozenset(found[1].lower() for found in map(_METHOD.fullmatch, dir(StrictFeedParser)) if found)
"""The names of the elements that feedparser interprets."""
_HANDLED_PREFIXES = {prefix for prefix, mark, _ in (name.partition("_") for name in FEEDPARSER_ELEMENTS) if mark}
_HANDLED_PREFIXES |= {"rdf", "sy", "xml"}
_RSS_1 = ("http://purl.org/rss/1.0/", "http://my.netscape.com/rdf/simple/0.9/")
_ATOM = "http://www.w3.org/2005/atom"
_DECLARATION = re.compile(r"xmlns(?::([\w.-]+))?\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")

_CASE_INSENSITIVE = ("rel", "type")
_COMMON_ATTRIBUTES = {
    name: name for name in ("href", "rel", "type", "title", "term", "scheme", "label", "domain", "url", "length")
} | {"isPermaLink": "ispermalink", "{http://www.w3.org/XML/1998/namespace}base": "xml:base"}

Element = etree._Element  # noqa: SLF001 - lxml has no public name for its own type


class FeedparserRequired(Exception):
    """Raised if the fast parser cannot reproduce feedparser's result for a part of a document."""


class ElementNames(dict[str, str]):
    """Maps lxml's tags to feedparser's element names, for one document.

    ``is_atom`` is true if feedparser treats the document as Atom. A lookup raises :class:`FeedparserRequired` if
    feedparser's name for the tag is uncertain.
    """

    # feedparser decides between Atom and RSS by the declared namespaces and their order.

    def __init__(self, text: str) -> None:
        super().__init__()
        declared = [(prefix, uri or other) for prefix, uri, other in _DECLARATION.findall(text)]
        self._prefixes: dict[str, str] = {}
        for prefix, uri in declared:
            if prefix and self._prefixes.setdefault(uri, prefix) != prefix and uri.lower() not in _PREFIXES:
                raise FeedparserRequired
            known = _PREFIXES.get(uri.lower())
            if known is None and "backend.userland.com/rss" in uri.lower():
                raise FeedparserRequired
            if prefix in _HANDLED_PREFIXES and prefix != known:
                raise FeedparserRequired
        decisive = [uri.lower() for _, uri in declared if uri.lower() in (*_RSS_1, _ATOM)]
        self.is_atom = decisive[:1] == [_ATOM]

    def __missing__(self, tag: str) -> str:
        namespace, local = tag[1:].rsplit("}", 1) if tag[0] == "{" else ("", tag)
        if not local.isascii():  # the characters allowed in a name differ between editions of XML
            raise FeedparserRequired
        prefix = _PREFIXES.get(namespace.lower()) if namespace else ""
        if prefix is None:
            prefix = self._prefixes.get(namespace)
            if prefix is None or prefix != prefix.lower():
                raise FeedparserRequired
        name = self[tag] = f"{prefix}_{local.lower()}" if prefix else local.lower()
        return name


def read_attributes(element: Element) -> dict[str, str]:
    """Return an element's attributes under the names that feedparser uses, such as ``xml:lang`` or ``ispermalink``."""
    given: Sequence[tuple[str, str]] = element.items()  # type: ignore[assignment]  # the stubs allow for bytes
    found: dict[str, str] = {}
    for tag, value in given:
        name = _COMMON_ATTRIBUTES.get(tag) or _attribute_name(tag)
        if name in found:
            raise FeedparserRequired
        found[name] = value.lower() if name in _CASE_INSENSITIVE else value
    return found


def _attribute_name(tag: str) -> str:
    name = tag.lower()
    if name[0] == "{":
        namespace, _, local = name[1:].partition("}")
        if not _PREFIXES.get(namespace):
            raise FeedparserRequired
        name = f"{_PREFIXES[namespace]}:{local}"
    if not name.isascii():
        raise FeedparserRequired
    return name


_INLINE_TYPES = {"text/plain", "text/html"}
_XHTML = "application/xhtml+xml"
# The characters that Windows-1252 has in place of the control characters of ISO 8859-1.
_WINDOWS_CHARACTERS = {
    byte: character for byte in range(0x80, 0xA0) if (character := bytes([byte]).decode("cp1252", "ignore"))
}
_IN_ATTRIBUTES = {'"': "&quot;"}


def element_text(element: Element) -> str:
    """Return the stripped text of an element that has no children."""
    if len(element):
        raise FeedparserRequired
    text = element.text
    return text.strip() if text else ""


def repair_text(text: str) -> str:
    """Repair common encoding errors in ``text``: UTF-8 that was decoded as Latin-1, and Windows-1252 characters."""
    # Both errors produce characters from U+0080 to U+00BF. In UTF-8 these begin with C2, for which a search is faster.
    if text.isascii() or b"\xc2" not in text.encode():
        return text
    with contextlib.suppress(UnicodeError):
        text = text.encode("iso-8859-1").decode()
    return text.translate(_WINDOWS_CHARACTERS)


def resolve_link(base: str, link: str) -> str:
    """Return ``link`` resolved against ``base``; "" if it cannot be resolved."""
    if ABSOLUTE_URL.fullmatch(link):
        return link
    resolved: str = feedparser.urls._urljoin(base, link)  # noqa: SLF001 - feedparser has no public function for it
    return resolved


def looks_like_html(text: str) -> bool:
    """Return whether feedparser treats ``text`` as HTML if its type is not declared."""
    return ("<" in text or "&" in text) and bool(StrictFeedParser.looks_like_html(text))


def read_text_construct(names: ElementNames, element: Element, default: str, *, may_be_xhtml: bool) -> tuple[str, str]:
    """Return (text, media type) of an element that may contain markup (RFC 4287 §3.1).

    - ``names`` maps lxml's tags to feedparser's element names.
    - ``default`` is the media type of an element without a ``type`` attribute.
    - ``may_be_xhtml`` is true if the element can contain XHTML.
    """
    given = read_attributes(element)
    if not given:
        return element_text(element), default
    kind: str = StrictFeedParser.map_content_type(given.get("type", default))
    if given.get("mode") == "base64":
        raise FeedparserRequired
    if kind in _INLINE_TYPES:
        return element_text(element), kind
    if kind != _XHTML or not may_be_xhtml:
        raise FeedparserRequired
    return _inner_xhtml(names, element), kind


def _inner_xhtml(names: ElementNames, element: Element) -> str:
    """Return the XHTML in an Atom element, without the ``div`` that wraps it (RFC 4287 §3.1.1.3)."""
    if len(element) != 1 or (element.text or "").strip() or (element[0].tail or "").strip():
        raise FeedparserRequired
    if names[element[0].tag] != "xhtml_div":
        raise FeedparserRequired
    pieces: list[str] = []
    _write_within(names, element[0], pieces)
    return "".join(pieces).strip()


def _write_within(names: ElementNames, element: Element, pieces: list[str]) -> None:
    pieces.append(escape(element.text or ""))
    for child in element:
        space, _, name = names[child.tag].partition("_")
        if space != "xhtml" or name in ("", "body", "svg"):
            raise FeedparserRequired
        given = read_attributes(child).items()
        written = "".join(f' {each}="{escape(value, _IN_ATTRIBUTES)}"' for each, value in given)
        pieces.append(f"<{name}{written}>")
        _write_within(names, child, pieces)
        pieces.append(f"</{name}>")
        pieces.append(escape(child.tail or ""))


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# The most common forms of dates. Python's parser reads them in half of the time that feedparser's takes.
_RFC_822 = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{1,2}) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([0-9]{4}) "
    r"([0-9]{2}:[0-9]{2}:[0-9]{2}) (GMT|[+-][0-9]{4})"
)
_RFC_3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


@lru_cache(maxsize=2)  # many entries state the same date twice
def parse_date(date: str) -> float | None:
    """Return the Unix time of the date written in ``date``; None if the date is empty, invalid or implausible."""
    with contextlib.suppress(ValueError):  # 31 April, a leap second: feedparser interprets these in further ways
        if found := _RFC_3339.fullmatch(date):
            return valid_time_s(dt.datetime.fromisoformat("".join(found.groups())).timestamp())
        if found := _RFC_822.fullmatch(date):
            day, month, year, clock, zone = found.groups()
            number = _MONTHS.index(month.lower()) + 1
            iso = f"{year}-{number:02}-{day:0>2}T{clock}{zone if zone != 'GMT' else 'Z'}"
            return valid_time_s(dt.datetime.fromisoformat(iso).timestamp())
    return to_unix_s(feedparser.datetimes._parse_date(date))  # noqa: SLF001 - as above
