"""The values of a well-formed feed as feedparser reads them: element names, attributes, texts, links and dates.

Each function returns feedparser's value, or raises :class:`FeedparserRequired` where it would not reproduce it.
"""

import datetime as dt
import html.entities
import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urljoin
from xml.sax.saxutils import escape

from lxml import etree

from service.feeds.parsing.limits import ABSOLUTE_URL, valid_time_s

# The namespaces that feedparser treats specially, by the prefix that it uses for them.
_KNOWN = {
    "": (
        "http://backend.userland.com/rss",
        "http://backend.userland.com/rss2",
        "http://blogs.law.harvard.edu/tech/rss",
        "http://purl.org/rss/1.0/",
        "http://my.netscape.com/rdf/simple/0.9/",
        "http://www.w3.org/2005/atom",
        "http://purl.org/rss/1.0/modules/rss091#",
        "http://purl.org/atom/ns#",
        "http://purl.org/pie/",
        "http://purl.org/echo/",
        "uri/of/echo/namespace#",
        "http://example.com/necho",
        "http://example.com/newformat#",
    ),
    "cc": ("http://creativecommons.org/ns#license", "http://web.resource.org/cc/"),
    "content": ("http://purl.org/rss/1.0/modules/content/",),
    "creativecommons": (
        "http://cyber.law.harvard.edu/rss/creativecommonsrssmodule.html",
        "http://backend.userland.com/creativecommonsrssmodule",
    ),
    "dc": ("http://purl.org/dc/elements/1.1/",),
    "dcterms": ("http://purl.org/dc/terms/",),
    "feedburner": ("http://rssnamespace.org/feedburner/ext/1.0",),
    "georss": ("http://www.georss.org/georss",),
    "gml": ("http://www.opengis.net/gml",),
    "itunes": ("http://www.itunes.com/dtds/podcast-1.0.dtd", "http://example.com/dtds/podcast-1.0.dtd"),
    "media": ("http://search.yahoo.com/mrss", "http://search.yahoo.com/mrss/"),
    "psc": ("http://podlove.org/simple-chapters",),
    "rdf": ("http://www.w3.org/1999/02/22-rdf-syntax-ns#",),
    "sy": ("http://purl.org/rss/1.0/modules/syndication/",),
    "xhtml": ("http://www.w3.org/1999/xhtml",),
    "xml": ("http://www.w3.org/xml/1998/namespace",),
}
_PREFIXES = {namespace: prefix for prefix, namespaces in _KNOWN.items() for namespace in namespaces}
_RSS_1 = ("http://purl.org/rss/1.0/", "http://my.netscape.com/rdf/simple/0.9/")
_ATOM = "http://www.w3.org/2005/atom"
_DECLARATION = re.compile(r"xmlns(?::([\w.-]+))?\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")

_CASE_INSENSITIVE = ("rel", "type")
_COMMON_ATTRIBUTES = {
    name: name for name in ("href", "rel", "type", "title", "term", "scheme", "label", "domain", "url", "length")
} | {"isPermaLink": "ispermalink", "{http://www.w3.org/XML/1998/namespace}base": "xml:base"}

Element = etree._Element  # noqa: SLF001 - lxml has no public name for its own type


class FeedparserRequired(Exception):
    """Raised for a part of a document for which the fast parser does not reproduce feedparser's result."""


class ElementNames(dict[str, str]):
    """A mapping from lxml's tags to feedparser's element names, for one document.

    ``is_atom`` says that feedparser treats the document as Atom. feedparser decides this by the declared namespaces and
    their order. A lookup raises :class:`FeedparserRequired` if feedparser's name for the tag is uncertain.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        declared = [(prefix, uri or other) for prefix, uri, other in _DECLARATION.findall(text)]
        self._prefixes: dict[str, str] = {}
        for prefix, uri in declared:
            if prefix and self._prefixes.setdefault(uri, prefix) != prefix and uri.lower() not in _PREFIXES:
                raise FeedparserRequired
            self._check(prefix, uri)
        decisive = [uri.lower() for _, uri in declared if uri.lower() in (*_RSS_1, _ATOM)]
        self.is_atom = decisive[:1] == [_ATOM]

    def _check(self, prefix: str, uri: str) -> None:
        known = _PREFIXES.get(uri.lower())
        if known is None and "backend.userland.com/rss" in uri.lower():
            raise FeedparserRequired
        if prefix in _KNOWN and prefix and prefix != known:
            raise FeedparserRequired

    def __missing__(self, tag: str) -> str:
        name = self[tag] = self._name(*tag[1:].rsplit("}", 1)) if tag[0] == "{" else self._name("", tag)
        return name

    def _name(self, namespace: str, local: str) -> str:
        if not local.isascii():  # the characters allowed in a name differ between editions of XML
            raise FeedparserRequired
        prefix = _PREFIXES.get(namespace.lower()) if namespace else ""
        if prefix is None:
            prefix = self._prefixes.get(namespace)
            if prefix is None or prefix != prefix.lower():
                raise FeedparserRequired
        return f"{prefix}_{local.lower()}" if prefix else local.lower()


def read_attributes(element: Element) -> dict[str, str]:
    """Return an element's attributes by feedparser's names, such as ``xml:lang``, ``rdf:about``, ``ispermalink``."""
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


_TYPES = {"": "text/plain", "text": "text/plain", "plain": "text/plain", "html": "text/html"} | {
    "xhtml": "application/xhtml+xml"
}
_INLINE_TYPES = {"text/plain", "text/html"}
_XHTML = "application/xhtml+xml"
_C1 = re.compile("[\x80-\x9f]")
_END_TAG = re.compile(r"</\w+>")
_REFERENCE = re.compile(r"&#?\w+;")
_NAMED = re.compile(r"&(\w+);")
_TAG_NAME = re.compile(r"</?(\w+)")
_INLINE_TAGS = {
    "a", "abbr", "b", "br", "cite", "code", "del", "em", "i", "ins", "p", "q", "small", "span", "strong", "sub", "sup",
    "tt", "u",
}  # fmt: skip
_IN_ATTRIBUTES = {'"': "&quot;"}
_SLASHES = re.compile("^([A-Za-z][A-Za-z0-9+-.]*://)/+")


def element_text(element: Element) -> str:
    """Return the stripped text of an element that has no children."""
    if len(element):
        raise FeedparserRequired
    text = element.text
    return text.strip() if text else ""


def repair_text(text: str) -> str:
    """Return the text with common encoding errors repaired: UTF-8 decoded as Latin-1, and Windows-1252 characters."""
    # Both errors produce characters from U+0080 to U+00BF. In UTF-8 these begin with C2, for which a search is faster.
    if text.isascii() or b"\xc2" not in text.encode():
        return text
    return _C1.sub(_windows_character, _undo_latin_1(text))


def _undo_latin_1(text: str) -> str:
    try:
        return text.encode("iso-8859-1").decode()
    except UnicodeError:
        return text


def _windows_character(found: re.Match[str]) -> str:
    try:
        return found[0].encode("iso-8859-1").decode("cp1252")
    except UnicodeError:
        return found[0]


def resolve_link(base: str, link: str) -> str:
    """Return ``link`` resolved against ``base``; "" if that is impossible."""
    if ABSOLUTE_URL.fullmatch(link):
        return link
    try:
        return urljoin(base, _SLASHES.sub(r"\1", link))
    except ValueError:
        return ""


def looks_like_html(text: str) -> bool:
    """Return whether a text of undeclared type is HTML.

    It is HTML if it has end tags or character references, and all of them are defined in HTML.
    """
    if "<" not in text and "&" not in text:
        return False
    if not _END_TAG.search(text) and not _REFERENCE.search(text):
        return False
    if not _INLINE_TAGS.issuperset(name.lower() for name in _TAG_NAME.findall(text)):
        raise FeedparserRequired
    return all(name in html.entities.entitydefs for name in _NAMED.findall(text))


def read_text_construct(names: ElementNames, element: Element, default: str, *, may_be_xhtml: bool) -> tuple[str, str]:
    """Return the text of an element that may contain markup, and the text's media type (RFC 4287 §3.1).

    ``default`` is the media type of an element without a ``type`` attribute. ``may_be_xhtml`` says whether the element
    can contain XHTML.
    """
    given = read_attributes(element)
    if not given:
        return element_text(element), default
    kind = given.get("type", default)
    kind = _TYPES.get(kind, kind)
    if given.get("mode") == "base64":
        raise FeedparserRequired
    if kind in _INLINE_TYPES:
        return element_text(element), kind
    if kind != _XHTML or not may_be_xhtml:
        raise FeedparserRequired
    return _inner_xhtml(names, element), kind


def _inner_xhtml(names: ElementNames, element: Element) -> str:
    """Return the content of the ``div`` that contains XHTML in Atom (RFC 4287 §3.1.1.3)."""
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


_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_ZONES_H = {"gmt": 0, "ut": 0, "utc": 0, "z": 0, "edt": -4, "est": -5, "cdt": -5, "cst": -6} | {
    "mdt": -6, "mst": -7, "pdt": -7, "pst": -8,
}  # fmt: skip
_SHORT_YEAR = 2
_FIRST_OF_1900S = "90"
_WEEKDAYS = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
_MAX_DATE_CHARS = 64
# The most common forms, which only have to be rearranged for Python's parser; that is faster.
_COMMON_RFC_822 = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{2}) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([0-9]{4}) "
    r"([0-9]{2}:[0-9]{2}:[0-9]{2}) (GMT|[+-][0-9]{4})"
)
_COMMON_RFC_3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:[0-9]{2})")
_RFC_822 = re.compile(
    r"(?:([a-z]{3})[a-z]*,? +)?([0-9]{1,2}) +([a-z]{3})[a-z]* +([0-9]{4}|[0-9]{2}) +"
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))? +(?:([a-z]{1,3})|([+-])([0-9]{2})([0-9]{2}))"
)
_RFC_3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[t ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?(?:z|([+-])([0-9]{2}):([0-9]{2}))?)?"
)


@lru_cache(maxsize=2)  # many entries state the same date twice
def parse_date(date: str) -> float | None:
    """Return the Unix time of a date; None if the date is empty or implausible.

    Raises :class:`FeedparserRequired` for a date in an uncommon form.
    """
    if not date:
        return None
    if len(date) > _MAX_DATE_CHARS:
        raise FeedparserRequired
    try:
        common = _to_rfc_3339(date)
        return valid_time_s(dt.datetime.fromisoformat(common).timestamp()) if common else _parse_uncommon_date(date)
    except ValueError:  # 31 April, a leap second: feedparser interprets these in further ways
        raise FeedparserRequired from None


def _to_rfc_3339(date: str) -> str:
    """Return a date in the format of RFC 3339; "" if it is not in one of the most common forms."""
    if _COMMON_RFC_3339.fullmatch(date):
        return date
    found = _COMMON_RFC_822.fullmatch(date)
    if not found:
        return ""
    day, month, year, clock, zone = found.groups()
    return f"{year}-{_MONTHS[month.lower()]:02}-{day}T{clock}{zone if zone != 'GMT' else 'Z'}"


def _parse_uncommon_date(date: str) -> float | None:
    lowered = date.lower()
    if found := _RFC_3339.fullmatch(lowered):
        year, month, day, *clock, sign, zone_h, zone_min = found.groups()
        zone_name = ""
    elif found := _RFC_822.fullmatch(lowered):
        weekday, day, month_name, year, *clock, zone_name, sign, zone_h, zone_min = found.groups()
        if month_name not in _MONTHS or (weekday and weekday not in _WEEKDAYS):
            raise FeedparserRequired
        month = _MONTHS[month_name]
        year = year if len(year) > _SHORT_YEAR else ("19" if year >= _FIRST_OF_1900S else "20") + year
    else:
        raise FeedparserRequired
    if zone_name and zone_name not in _ZONES_H:
        raise FeedparserRequired
    hour, minute, second = clock
    moment = dt.datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=dt.UTC
    )
    offset_s = _ZONES_H[zone_name] * 3_600 if zone_name else int(zone_h or 0) * 3_600 + int(zone_min or 0) * 60
    return valid_time_s(moment.timestamp() - (-offset_s if sign == "-" else offset_s))
