"""From a web page's bytes to its core content as lines, and to the feeds it names; runs in a killable child.

We deviate from article extractors, which lose the price lists, tables and indexes that people watch: all
that is shown counts, except what the page itself marks as being around its content. ``<main>``, or the only
``<article>``, is the page if it holds at least half of that. A part that holds more than half of all
text is content whatever its name (whole pages stand in a ``<form>``), and if hardly anything is left, all is.

A block is a line; a row of a table is one, with `` | `` between its cells, unless it is long or holds other
tables (it lays out the page then). White space collapses except for line breaks in ``pre``. Of links and
images only the text (``alt``) counts: their addresses carry sessions, sizes and signatures.
What no reader sees is left out: scripts, templates, embedded things, what is marked or styled as hidden.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urljoin

import cssselect
from lxml import etree, html

from service.errors import BadUrl, EmptyBody, NotAFeed
from service.feeds.parsing.charset import decode_document
from service.feeds.parsing.html_text import one_line
from service.feeds.parsing.limits import FIELD_CHARS
from service.feeds.urls import canonical_url
from service.model import FeedLink, ParsedPage

MAX_ATTRIBUTES = 200
_CHARSET = re.compile(rb"<meta\s[^<>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN_BYTES = 1024  # HTML, "Specifying the document's character encoding"
_LONG_TAG = re.compile(r"<([A-Za-z][A-Za-z0-9]{0,20})(?=[\s/])[^<>]{800,}>")
_BETWEEN_ATTRIBUTES = re.compile(r"[\s/\"']+")


def html_text(body: bytes, content_type: str) -> str:
    """Return the page's text; of the encodings that are named, a header's counts more than the page's own."""
    return decode_document(body, content_type if "charset" in content_type.lower() else _with_meta(body, content_type))


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


MAX_LINES = 20_000
LINE_CHARS = 2_000
TEXT_BYTES = 1024 * 1024
MAX_ELEMENTS = 300_000
_ROW_CHARS = 400

_SILENT = frozenset({
    "applet", "audio", "canvas", "datalist", "embed", "iframe", "map", "math", "noembed", "noframes",
    "noscript", "object", "script", "style", "svg", "template", "title", "video",
})  # fmt: skip
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "dialog", "dir",
    "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hgroup", "hr", "legend", "li", "listing", "main", "menu", "nav", "ol", "optgroup", "option", "p", "pre",
    "search", "section", "select", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", "xmp",
})  # fmt: skip
_ROOTS = frozenset({"html", "body"})
_CELLS = frozenset({"td", "th"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "caption", "summary", "legend"})
_PREFORMATTED = frozenset({"pre", "listing", "textarea", "xmp"})
_LANDMARKS = {
    "main": "main", "article": "article", "nav": "nav", "header": "header", "footer": "footer", "aside": "aside",
    "form": "form", "search": "form",
}  # fmt: skip
_LANDMARK_ROLES = {
    "main": "main", "article": "article", "navigation": "nav", "banner": "header", "contentinfo": "footer",
    "complementary": "aside", "search": "form",
}  # fmt: skip
_CONTENT = frozenset({"main", "article"})
_OF_SECTIONS = frozenset({"header", "footer"})
_NOT_SHOWN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)


class Part(NamedTuple):
    """A landmark of the page (HTML, "Sections"; WAI-ARIA roles); number 0 is what stands in none."""

    kind: str
    number: int


class Line(NamedTuple):
    """One line of text, cleaned, not empty."""

    text: str
    part: Part
    is_heading: bool


OPEN = Part("", 0)


def page_lines(*roots: etree._Element) -> list[Line]:
    """Return the lines under ``roots``: at most 20,000 and 1 MiB of text, each at most 2,000 characters long.

    After 300,000 elements (the largest pages have 100,000) the rest is left out.
    """
    reader = _Reader()
    for root in roots:
        reader.read(root)
    return reader.lines


class _Reader:
    """What is open while a tree is read from its beginning to its end; no recursion, however deep it is."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._size_bytes = 0
        self._elements_left = MAX_ELEMENTS
        self._pieces: list[str] = []
        self._row: list[list[Line]] | None = None
        self._landmarks: list[tuple[etree._Element | None, Part]] = [(None, OPEN)]
        self._landmark_count = 0
        self._sections = 0
        self._preformatted = 0

    def read(self, root: etree._Element) -> None:
        skipped = None
        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            if event == "start":
                if element is not root and _is_unseen(element):
                    skipped = element
                    walk.skip_subtree()
                    continue
                self._open(element)
                self._take(element.text)
            else:
                if element is skipped:
                    skipped = None
                else:
                    self._close(element)
                if element is not root:
                    self._take(element.tail)
            self._elements_left -= event == "end"
            if len(self.lines) == MAX_LINES or self._size_bytes > TEXT_BYTES or not self._elements_left:
                break
        self._end_line()

    def _open(self, element: etree._Element) -> None:
        tag = element.tag
        if tag in _BLOCKS:
            self._end_line()
            self._open_in_table(tag)
            self._sections += tag == "section"
        elif tag == "img":
            self._pieces.append(f" {element.get('alt') or ''} ")
        self._preformatted += tag in _PREFORMATTED
        part = self._landmark(element)
        if part:
            self._landmarks.append((element, part))

    def _close(self, element: etree._Element) -> None:
        tag = element.tag
        if tag in _BLOCKS:
            self._end_line(is_heading=tag in _HEADINGS)
            self._sections -= tag == "section"
            if tag == "tr":
                self._end_row()
        self._preformatted -= tag in _PREFORMATTED
        if self._landmarks[-1][0] is element:
            self._landmarks.pop()

    def _open_in_table(self, tag: str) -> None:
        if tag == "tr":
            self._dissolve_row()
            self._row = [[]]
        elif tag == "table":
            self._dissolve_row()
        elif tag in _CELLS and self._row is not None:
            self._row.append([])

    def _landmark(self, element: etree._Element) -> Part | None:
        """Return the part that begins here; within content, and of sections' own headers and footers, there is none."""
        kind = _LANDMARKS.get(element.tag) or _LANDMARK_ROLES.get(element.get("role") or "")
        if not kind or self._landmarks[-1][1].kind in _CONTENT or (self._sections and kind in _OF_SECTIONS):
            return None
        self._landmark_count += 1
        return Part(kind, self._landmark_count)

    def _take(self, text: str | None) -> None:
        if not text:
            return
        if self._preformatted:
            *ended, text = text.split("\n")
            for line in ended:
                self._pieces.append(line)
                self._end_line()
        self._pieces.append(text)

    def _end_line(self, *, is_heading: bool = False) -> None:
        # All white space first: one_line looks at a limited number of characters.
        text = one_line(" ".join("".join(self._pieces).split()), LINE_CHARS)
        self._pieces.clear()
        if not text:
            return
        line = Line(text, self._landmarks[-1][1], is_heading)
        if self._row is None:
            self._add(line)
        else:
            self._row[-1].append(line)

    def _end_row(self) -> None:
        if self._row is None:
            return
        cells = [" ".join(line.text for line in cell) for cell in self._row if cell]
        row = " | ".join(cells)
        if cells and len(row) <= _ROW_CHARS:
            self._add(Line(row, self._landmarks[-1][1], is_heading=False))
            self._row = None
        self._dissolve_row()

    def _dissolve_row(self) -> None:
        for cell in self._row or ():
            for line in cell:
                self._add(line)
        self._row = None

    def _add(self, line: Line) -> None:
        self._size_bytes += len(line.text.encode())
        if len(self.lines) < MAX_LINES and self._size_bytes <= TEXT_BYTES:
            self.lines.append(line)


def _is_unseen(element: etree._Element) -> bool:
    if element.tag in _ROOTS:
        return False  # hidden until a script has run
    return (
        element.tag in _SILENT
        or element.get("hidden") is not None
        or (element.tag == "dialog" and element.get("open") is None)
        or bool(_NOT_SHOWN.search(element.get("style") or ""))
    )


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
