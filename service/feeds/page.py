"""From a web page's bytes to its core content as lines of text; runs in a killable child (``sandbox``).

We deviate from article extractors, which lose the price lists, tables and indexes that people watch: all
that is shown counts, except what the page itself marks as being around its content. ``<main>``, or the only
``<article>``, is the page if it holds at least half of that. A part that holds more than half of all
text is content whatever its name (whole pages stand in a ``<form>``), and if hardly anything is left, all is.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import cssselect
from lxml import etree, html

from service.errors import EmptyBody, NotAFeed
from service.feeds.charset import text_of
from service.feeds.pagelines import LINE_CHARS, MAX_LINES, OPEN, TEXT_BYTES, Line, Part, page_lines
from service.feeds.text import one_line
from service.model import ParsedPage

MAX_ATTRIBUTES = 200
_CHARSET = re.compile(rb"<meta\s[^<>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN_BYTES = 1024  # HTML, "Specifying the document's character encoding"
_LONG_TAG = re.compile(r"<([A-Za-z][A-Za-z0-9]{0,20})(?=[\s/])[^<>]{800,}>")
_BETWEEN_ATTRIBUTES = re.compile(r"[\s/\"']+")


def html_text(body: bytes, content_type: str) -> str:
    """Return the page's text; of the encodings that are named, a header's counts more than the page's own."""
    return text_of(body, content_type if "charset" in content_type.lower() else _with_meta(body, content_type))


def html_tree(text: str) -> html.HtmlElement | None:
    """Return the page's root without comments; None if it has none. Raises :class:`MemoryError`."""
    # Nothing but UTF-8 reaches the parser, so that no declaration in the document can mislead it.
    parser = html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(_LONG_TAG.sub(_bounded_tag, text).encode("utf-8", "replace"), parser=parser)
    except (etree.LxmlError, ValueError):
        root = None
    if any(error.type == etree.ErrorTypes.ERR_NO_MEMORY for error in parser.error_log):
        raise MemoryError  # what libxml2 has until then would pass for the whole page
    return root


def _with_meta(body: bytes, content_type: str) -> str:
    found = _CHARSET.search(body, 0, _CHARSET_WITHIN_BYTES)
    return f"{content_type}; charset={found[1].decode()}" if found else content_type


def _bounded_tag(tag: re.Match[str]) -> str:
    """Return the tag, bare if it may have more than 200 attributes: libxml2 takes quadratic time for them."""
    return tag[0] if len(_BETWEEN_ATTRIBUTES.findall(tag[0])) <= MAX_ATTRIBUTES else f"<{tag[1]}>"


_TITLE_CHARS = 200
_LOGIN_CHARS = 500
_BEGINNING_CHARS = 4_096
_BINARY_SHARE = 0.02
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_HARDLY_ANYTHING = 0.1
_AROUND = frozenset({"nav", "header", "footer", "aside", "form"})


def parse_page(body: bytes, *, headers: Mapping[str, str], selector: str = "") -> ParsedPage:
    """Return the page that ``body``, fetched with these response headers, shows.

    With ``selector`` (CSS) only what it matches counts, wherever it stands. Plain text and the like are
    taken line by line. Raises :class:`EmptyBody` when nothing is shown or matches, or only a login is asked for,
    and :class:`NotAFeed` for what is no text.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    content_type = lowered.get("content-type", "")
    text = html_text(body, content_type)
    if _is_binary(text):
        raise NotAFeed("This is no page of text; it cannot be watched.")
    if _is_plain(content_type):
        return _page("", _plain_lines(text))
    root = html_tree(text)
    if root is None:
        raise EmptyBody("The page is empty.")
    lines = _selected(root, selector) if selector else _core(page_lines(root))
    if not lines or (not selector and _is_login(root, lines)):
        raise _nothing(root, selector)
    title = next((element.text_content() for element in root.iter("title")), "")
    return _page(one_line(title, _TITLE_CHARS), lines)


def _page(title: str, lines: Sequence[Line]) -> ParsedPage:
    headings = tuple(place for place, line in enumerate(lines) if line.is_heading)
    return ParsedPage(title, tuple(line.text for line in lines), headings)


def _is_binary(text: str) -> bool:
    beginning = text[:_BEGINNING_CHARS]
    return _BINARY_SHARE * len(beginning) < len(_CONTROLS.findall(beginning))


def _is_plain(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return (kind.startswith("text/") and kind not in {"text/html", "text/xml"}) or kind.endswith("json")


def _plain_lines(text: str) -> list[Line]:
    lines: list[Line] = []
    left_bytes = TEXT_BYTES
    for raw in text.splitlines():
        line = one_line(" ".join(raw.split()), LINE_CHARS)
        left_bytes -= len(line.encode())
        if left_bytes < 0 or len(lines) == MAX_LINES:
            break
        if line:
            lines.append(Line(line, OPEN, is_heading=False))
    if not lines:
        raise EmptyBody("The document is empty.")
    return lines


def _selected(root: html.HtmlElement, selector: str) -> list[Line]:
    """Return the lines of what ``selector`` matches, in document order.

    Some selectors take quadratic time (``:nth-child`` among 20,000 siblings takes 5 s): this child's limits stop them.
    """
    try:
        found = root.cssselect(selector, translator="html")
    except (cssselect.SelectorError, etree.XPathError, ValueError, RecursionError) as error:
        raise EmptyBody(
            "`{selector}` is not a CSS selector, so it matches nothing on the page.", selector=selector
        ) from error
    matches = set(found)
    return page_lines(*(match for match in found if matches.isdisjoint(match.iterancestors())))


def _is_login(root: html.HtmlElement, lines: Sequence[Line]) -> bool:
    """Say whether the page is there to log in: what it says is not what somebody wants to watch."""
    return _asks_for_password(root) and sum(len(line.text) for line in lines) <= _LOGIN_CHARS


def _asks_for_password(root: html.HtmlElement) -> bool:
    return any(field.get("type", "").lower() == "password" for field in root.iter("input"))


def _nothing(root: html.HtmlElement, selector: str) -> EmptyBody:
    if selector:
        return EmptyBody("Nothing on the page matches `{selector}`.", selector=selector)
    if _asks_for_password(root):
        return EmptyBody("The page asks for a login, and I have none.")
    if next(root.iter("script"), None) is not None:
        return EmptyBody(
            "The page shows nothing without JavaScript, which is not run here; look for a feed or another page."
        )
    return EmptyBody("The page is empty.")


def _core(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of the page's content; see the top of this file."""
    sizes: Counter[Part] = Counter()
    for line in lines:
        sizes[line.part] += len(line.text)
    total = sizes.total()
    around = {part for part, size in sizes.items() if part.kind in _AROUND and 2 * size <= total}
    content = sizes.keys() - around
    remaining = sum(sizes[part] for part in content)
    if remaining < _HARDLY_ANYTHING * total:
        return list(lines)
    articles = {part for part in content if part.kind == "article"}
    for bulk in ({part for part in content if part.kind == "main"}, articles if len(articles) == 1 else set()):
        if bulk and 2 * sum(sizes[part] for part in bulk) >= remaining:
            content = bulk
            break
    return [line for line in lines if line.part in content]
