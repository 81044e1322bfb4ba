"""Text of elements as feedparser hands it out: stripped, repaired, XHTML as a string."""

import html.entities
import re
from urllib.parse import urljoin
from xml.sax.saxutils import escape

from service.feeds.limits import ABSOLUTE_URL
from service.feeds.strict_names import Declined, Element, Names, attributes

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
