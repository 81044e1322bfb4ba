"""Values of a well-formed feed as feedparser reads them: names, attributes, text, links and dates."""

import datetime as dt
import html.entities
import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urljoin
from xml.sax.saxutils import escape

from lxml import etree

from service.feeds.parsing.limits import ABSOLUTE_URL, sane_time_s

# Of the namespaces that feedparser knows those in which it does anything; the others' prefixes are as good as any.
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

_IN_ANY_CASE = ("rel", "type")
_USUAL_ATTRIBUTES = {
    name: name for name in ("href", "rel", "type", "title", "term", "scheme", "label", "domain", "url", "length")
} | {"isPermaLink": "ispermalink", "{http://www.w3.org/XML/1998/namespace}base": "xml:base"}

Element = etree._Element  # noqa: SLF001 - lxml has no public name for its own type


class Declined(Exception):
    """Something in the document that is left to feedparser."""


class Names(dict[str, str]):
    """From lxml's tags to feedparser's names, for one document. Raises :class:`Declined` where that is not clear.

    ``speaks_atom``: feedparser takes the document's dialect for one of Atom's. It decides that by the
    namespaces that are declared, and in what order.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        declared = [(prefix, uri or other) for prefix, uri, other in _DECLARATION.findall(text)]
        self._prefixes: dict[str, str] = {}
        for prefix, uri in declared:
            if prefix and self._prefixes.setdefault(uri, prefix) != prefix and uri.lower() not in _PREFIXES:
                raise Declined
            self._check(prefix, uri)
        telling = [uri.lower() for _, uri in declared if uri.lower() in (*_RSS_1, _ATOM)]
        self.speaks_atom = telling[:1] == [_ATOM]

    def _check(self, prefix: str, uri: str) -> None:
        known = _PREFIXES.get(uri.lower())
        if known is None and "backend.userland.com/rss" in uri.lower():
            raise Declined
        if prefix in _KNOWN and prefix and prefix != known:
            raise Declined

    def __missing__(self, tag: str) -> str:
        name = self[tag] = self._name(*tag[1:].rsplit("}", 1)) if tag[0] == "{" else self._name("", tag)
        return name

    def _name(self, namespace: str, local: str) -> str:
        if not local.isascii():  # which characters make a name differs between editions of XML
            raise Declined
        prefix = _PREFIXES.get(namespace.lower()) if namespace else ""
        if prefix is None:
            prefix = self._prefixes.get(namespace)
            if prefix is None or prefix != prefix.lower():
                raise Declined
        return f"{prefix}_{local.lower()}" if prefix else local.lower()


def attributes(element: Element) -> dict[str, str]:
    """Return an element's attributes as feedparser names them: ``xml:lang``, ``rdf:about``, ``ispermalink``."""
    given: Sequence[tuple[str, str]] = element.items()  # type: ignore[assignment]  # the stubs allow for bytes
    found: dict[str, str] = {}
    for tag, value in given:
        name = _USUAL_ATTRIBUTES.get(tag) or _attribute_name(tag)
        if name in found:
            raise Declined
        found[name] = value.lower() if name in _IN_ANY_CASE else value
    return found


def _attribute_name(tag: str) -> str:
    name = tag.lower()
    if name[0] == "{":
        namespace, _, local = name[1:].partition("}")
        if not _PREFIXES.get(namespace):
            raise Declined
        name = f"{_PREFIXES[namespace]}:{local}"
    if not name.isascii():
        raise Declined
    return name


_TYPES = {"": "text/plain", "text": "text/plain", "plain": "text/plain", "html": "text/html"} | {
    "xhtml": "application/xhtml+xml"
}
_PROSE = {"text/plain", "text/html"}
_XHTML = "application/xhtml+xml"
_C1 = re.compile("[\x80-\x9f]")
_END_TAG = re.compile(r"</\w+>")
_REFERENCE = re.compile(r"&#?\w+;")
_NAMED = re.compile(r"&(\w+);")
_TAG_NAME = re.compile(r"</?(\w+)")
_USUAL_TAGS = {"a", "abbr", "b", "br", "cite", "code", "del", "em", "i", "ins", "p", "q", "small", "span", "strong"} | {
    "sub", "sup", "tt", "u",
}  # fmt: skip
_IN_ATTRIBUTES = {'"': "&quot;"}
_SLASHES = re.compile("^([A-Za-z][A-Za-z0-9+-.]*://)/+")


def text_of(element: Element) -> str:
    """Return the text of an element that has no children."""
    if len(element):
        raise Declined
    text = element.text
    return text.strip() if text else ""


def mended(text: str) -> str:
    """Return the text as it was meant: UTF-8 that was taken for Latin-1 on its way, and Windows' characters."""
    # Both have characters from U+0080 to U+00BF, which begin with C2 in UTF-8: that is found faster than they are.
    if text.isascii() or b"\xc2" not in text.encode():
        return text
    return _C1.sub(_windows_character, _latin_1_undone(text))


def _latin_1_undone(text: str) -> str:
    try:
        return text.encode("iso-8859-1").decode()
    except UnicodeError:
        return text


def _windows_character(found: re.Match[str]) -> str:
    try:
        return found[0].encode("iso-8859-1").decode("cp1252")
    except UnicodeError:
        return found[0]


def address(base: str, link: str) -> str:
    """Return the link, absolute."""
    if ABSOLUTE_URL.fullmatch(link):
        return link
    try:
        return urljoin(base, _SLASHES.sub(r"\1", link))
    except ValueError:
        return ""


def looks_like_html(text: str) -> bool:
    """Say whether a text is markup though nothing says so: by its end tags or references, all of them HTML's."""
    if "<" not in text and "&" not in text:
        return False
    if not _END_TAG.search(text) and not _REFERENCE.search(text):
        return False
    if not _USUAL_TAGS.issuperset(name.lower() for name in _TAG_NAME.findall(text)):
        raise Declined
    return all(name in html.entities.entitydefs for name in _NAMED.findall(text))


def prose(names: Names, element: Element, default: str, *, may_be_xhtml: bool) -> tuple[str, str]:
    """Return a text that may be markup, and its media type."""
    given = attributes(element)
    if not given:
        return text_of(element), default
    kind = given.get("type", default)
    kind = _TYPES.get(kind, kind)
    if given.get("mode") == "base64":
        raise Declined
    if kind in _PROSE:
        return text_of(element), kind
    if kind != _XHTML or not may_be_xhtml:
        raise Declined
    return _inner_xhtml(names, element), kind


def _inner_xhtml(names: Names, element: Element) -> str:
    """Return what stands within the one ``div`` that holds XHTML in Atom (RFC 4287 §3.1.1.3)."""
    if len(element) != 1 or (element.text or "").strip() or (element[0].tail or "").strip():
        raise Declined
    if names[element[0].tag] != "xhtml_div":
        raise Declined
    pieces: list[str] = []
    _write_within(names, element[0], pieces)
    return "".join(pieces).strip()


def _write_within(names: Names, element: Element, pieces: list[str]) -> None:
    pieces.append(escape(element.text or ""))
    for child in element:
        space, _, name = names[child.tag].partition("_")
        if space != "xhtml" or name in ("", "body", "svg"):
            raise Declined
        given = attributes(child).items()
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
_LONGEST = 64
# As nearly everybody writes them: these only have to be brought into one form for Python, which is faster.
_USUAL_RFC_822 = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{2}) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([0-9]{4}) "
    r"([0-9]{2}:[0-9]{2}:[0-9]{2}) (GMT|[+-][0-9]{4})"
)
_USUAL_RFC_3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:[0-9]{2})")
_RFC_822 = re.compile(
    r"(?:([a-z]{3})[a-z]*,? +)?([0-9]{1,2}) +([a-z]{3})[a-z]* +([0-9]{4}|[0-9]{2}) +"
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))? +(?:([a-z]{1,3})|([+-])([0-9]{2})([0-9]{2}))"
)
_RFC_3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[t ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?(?:z|([+-])([0-9]{2}):([0-9]{2}))?)?"
)


@lru_cache(maxsize=2)  # for entries that say twice when they were written
def time_s(date: str) -> float | None:
    """Return the date in Unix seconds; None if it is empty or impossible. Raises :class:`Declined` for other forms."""
    if not date:
        return None
    if len(date) > _LONGEST:
        raise Declined
    try:
        usual = _usual_form(date)
        return sane_time_s(dt.datetime.fromisoformat(usual).timestamp()) if usual else _unusual_time_s(date)
    except ValueError:  # such as 31 April or a leap second, for which feedparser has more readings
        raise Declined from None


def _usual_form(date: str) -> str:
    """Return a date that has one of the usual forms in that of RFC 3339; "" for others."""
    if _USUAL_RFC_3339.fullmatch(date):
        return date
    found = _USUAL_RFC_822.fullmatch(date)
    if not found:
        return ""
    day, month, year, clock, zone = found.groups()
    return f"{year}-{_MONTHS[month.lower()]:02}-{day}T{clock}{zone if zone != 'GMT' else 'Z'}"


def _unusual_time_s(date: str) -> float | None:
    lowered = date.lower()
    if found := _RFC_3339.fullmatch(lowered):
        year, month, day, *clock, sign, zone_h, zone_min = found.groups()
        zone_name = ""
    elif found := _RFC_822.fullmatch(lowered):
        weekday, day, month_name, year, *clock, zone_name, sign, zone_h, zone_min = found.groups()
        if month_name not in _MONTHS or (weekday and weekday not in _WEEKDAYS):
            raise Declined
        month = _MONTHS[month_name]
        year = year if len(year) > _SHORT_YEAR else ("19" if year >= _FIRST_OF_1900S else "20") + year
    else:
        raise Declined
    if zone_name and zone_name not in _ZONES_H:
        raise Declined
    hour, minute, second = clock
    moment = dt.datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=dt.UTC
    )
    offset_s = _ZONES_H[zone_name] * 3_600 if zone_name else int(zone_h or 0) * 3_600 + int(zone_min or 0) * 60
    return sane_time_s(moment.timestamp() - (-offset_s if sign == "-" else offset_s))
