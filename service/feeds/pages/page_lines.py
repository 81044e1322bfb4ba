"""Conversion of an HTML document to lines of text, each with the landmark (such as navigation) that contains it.

- Each block element becomes a line.
- A table row becomes one line, with `` | `` between its cells. Long rows, and rows that contain other tables, are
  divided into several lines.
- White space is collapsed, except for line breaks in ``pre``.
- Links are represented by their text, and images by their ``alt`` text. Their URLs are left out, because they contain
  session ids, sizes and signatures.
- Invisible content is omitted: scripts, templates, embedded content, and hidden elements.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from lxml import etree, html

from service.feeds.parsing.charset import decode_document
from service.feeds.parsing.html_text import one_line

MAX_ATTRIBUTES = 200
_CHARSET = re.compile(rb"<meta\s[^<>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN_BYTES = 1024  # HTML, "Specifying the document's character encoding"
_LONG_TAG = re.compile(r"<([A-Za-z][A-Za-z0-9]{0,20})(?=[\s/])[^<>]{800,}>")
_BETWEEN_ATTRIBUTES = re.compile(r"[\s/\"']+")


def decode_html(body: bytes, content_type: str) -> str:
    """Decode an HTML document from bytes to text.

    ``content_type`` is the value of the ``Content-Type`` header. An encoding in this header takes precedence over one
    in a ``<meta>`` element.
    """
    return decode_document(body, content_type if "charset" in content_type.lower() else _with_meta(body, content_type))


def parse_html(text: str) -> html.HtmlElement | None:
    """Parse an HTML document; return its root element, without comments, or None for an empty document.

    Raises :class:`MemoryError` if the document needs more memory than the process may use.
    """
    # The parser always gets UTF-8, so that no declaration in the document can mislead it.
    parser = html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(_LONG_TAG.sub(_bounded_tag, text).encode("utf-8", "replace"), parser=parser)
    except (etree.LxmlError, ValueError):
        root = None
    if any(error.type == etree.ErrorTypes.ERR_NO_MEMORY for error in parser.error_log):
        raise MemoryError  # libxml2 would return the part of the page that it has parsed until then
    return root


def _with_meta(body: bytes, content_type: str) -> str:
    found = _CHARSET.search(body, 0, _CHARSET_WITHIN_BYTES)
    return f"{content_type}; charset={found[1].decode()}" if found else content_type


def _bounded_tag(tag: re.Match[str]) -> str:
    """Return the source text of an HTML tag, without its attributes if there may be more than 200 of them.

    ``tag`` is the match of a regular expression that matches tags.
    """
    # libxml2 takes quadratic time for the attributes of a tag.
    return tag[0] if len(_BETWEEN_ATTRIBUTES.findall(tag[0])) <= MAX_ATTRIBUTES else f"<{tag[1]}>"


MAX_LINES = 20_000
LINE_CHARS = 2_000
MAX_TEXT_BYTES = 1024 * 1024
MAX_ELEMENTS = 300_000
_ROW_CHARS = 400

_HIDDEN_ELEMENTS = frozenset({
    "applet", "audio", "canvas", "datalist", "embed", "iframe", "map", "math", "noembed", "noframes",
    "noscript", "object", "script", "style", "svg", "template", "title", "video",
})  # fmt: skip
_BLOCK_ELEMENTS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "dialog", "dir",
    "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hgroup", "hr", "legend", "li", "listing", "main", "menu", "nav", "ol", "optgroup", "option", "p", "pre",
    "search", "section", "select", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", "xmp",
})  # fmt: skip
_ROOTS = frozenset({"html", "body"})
_CELLS = frozenset({"td", "th"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "caption", "summary", "legend"})
_PREFORMATTED = frozenset({"pre", "listing", "textarea", "xmp"})
_LANDMARK_ELEMENTS = {
    "main": "main", "article": "article", "nav": "nav", "header": "header", "footer": "footer", "aside": "aside",
    "form": "form", "search": "form",
}  # fmt: skip
_LANDMARK_ROLES = {
    "main": "main", "article": "article", "navigation": "nav", "banner": "header", "contentinfo": "footer",
    "complementary": "aside", "search": "form",
}  # fmt: skip
_CONTENT_LANDMARKS = frozenset({"main", "article"})
_SECTION_LANDMARKS = frozenset({"header", "footer"})
_HIDING_STYLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)


class Landmark(NamedTuple):
    """A landmark of a page, such as navigation or footer (HTML, "Sections"; WAI-ARIA roles).

    - ``kind`` is "main", "article", "nav", "header", "footer", "aside" or "form".
    - ``number`` is the sequence number of the landmark within the page, from 1.

    Text outside all landmarks has a landmark with the kind "" and the number 0.
    """

    kind: str
    number: int


class Line(NamedTuple):
    """A non-empty line of a page's sanitised text.

    - ``landmark`` is the part of the page, such as a footer, that contains the line.
    - ``is_heading`` is true if the line is a heading or a caption.
    """

    text: str
    landmark: Landmark
    is_heading: bool


NO_LANDMARK = Landmark("", 0)


def page_lines(*roots: etree._Element) -> list[Line]:
    """Return the lines of text in the elements ``roots``.

    The result has at most 20,000 lines of up to 2,000 characters each, and at most 1 MiB in total. Text after the first
    300,000 elements is omitted.
    """
    # The largest pages have 100,000 elements.
    extractor = _LineExtractor()
    for root in roots:
        extractor.extract(root)
    return extractor.lines


def plain_lines(texts: Iterable[str]) -> list[Line]:
    """Return ``texts``, none of which contains a line break, as lines, without empty ones; the limits are the same."""
    lines: list[Line] = []
    left_bytes = MAX_TEXT_BYTES
    for text in texts:
        line = one_line(" ".join(text.split()), LINE_CHARS)
        left_bytes -= len(line.encode())
        if left_bytes < 0 or len(lines) == MAX_LINES:
            break
        if line:
            lines.append(Line(line, NO_LANDMARK, is_heading=False))
    return lines


class _LineExtractor:
    """Collects the lines of text in an element tree of any depth, in document order. It does not use recursion."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._size_bytes = 0
        self._elements_left = MAX_ELEMENTS
        self._pieces: list[str] = []
        self._row: list[list[Line]] | None = None
        self._landmarks: list[tuple[etree._Element | None, Landmark]] = [(None, NO_LANDMARK)]
        self._landmark_count = 0
        self._sections = 0
        self._preformatted = 0

    def extract(self, root: etree._Element) -> None:
        hidden = None
        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            if event == "start":
                if element is not root and _is_hidden(element):
                    hidden = element
                    walk.skip_subtree()
                    continue
                self._on_start(element)
                self._add_text(element.text)
            else:
                if element is hidden:
                    hidden = None
                else:
                    self._on_end(element)
                if element is not root:
                    self._add_text(element.tail)
            self._elements_left -= event == "end"
            if len(self.lines) == MAX_LINES or self._size_bytes > MAX_TEXT_BYTES or not self._elements_left:
                break
        self._end_line()

    def _on_start(self, element: etree._Element) -> None:
        tag = element.tag
        if tag in _BLOCK_ELEMENTS:
            self._end_line()
            if tag in ("table", "tr"):
                self._flush_row()
            if tag == "tr":
                self._row = [[]]
            elif tag in _CELLS and self._row is not None:
                self._row.append([])
            self._sections += tag == "section"
        elif tag == "img":
            self._pieces.append(f" {element.get('alt') or ''} ")
        self._preformatted += tag in _PREFORMATTED
        landmark = self._landmark_of(element)
        if landmark:
            self._landmarks.append((element, landmark))

    def _on_end(self, element: etree._Element) -> None:
        tag = element.tag
        if tag in _BLOCK_ELEMENTS:
            self._end_line(is_heading=tag in _HEADINGS)
            self._sections -= tag == "section"
            if tag == "tr":
                self._end_row()
        self._preformatted -= tag in _PREFORMATTED
        if self._landmarks[-1][0] is element:
            self._landmarks.pop()

    def _landmark_of(self, element: etree._Element) -> Landmark | None:
        """Return the landmark (such as navigation) that begins with ``element``; None if the element is not a landmark.

        Elements inside ``<main>`` or ``<article>`` are not landmarks, nor is the header or footer of a ``<section>``.
        """
        kind = _LANDMARK_ELEMENTS.get(element.tag) or _LANDMARK_ROLES.get(element.get("role") or "")
        if (
            not kind
            or self._landmarks[-1][1].kind in _CONTENT_LANDMARKS
            or (self._sections and kind in _SECTION_LANDMARKS)
        ):
            return None
        self._landmark_count += 1
        return Landmark(kind, self._landmark_count)

    def _add_text(self, text: str | None) -> None:
        if not text:
            return
        if self._preformatted:
            *ended, text = text.split("\n")
            for line in ended:
                self._pieces.append(line)
                self._end_line()
        self._pieces.append(text)

    def _end_line(self, *, is_heading: bool = False) -> None:
        # Collapse white space first, because one_line reads a limited number of characters.
        text = one_line(" ".join("".join(self._pieces).split()), LINE_CHARS)
        self._pieces.clear()
        if not text:
            return
        line = Line(text, self._landmarks[-1][1], is_heading)
        if self._row is None:
            self._add_line(line)
        else:
            self._row[-1].append(line)

    def _end_row(self) -> None:
        if self._row is None:
            return
        cells = [" ".join(line.text for line in cell) for cell in self._row if cell]
        row = " | ".join(cells)
        if cells and len(row) <= _ROW_CHARS:
            self._add_line(Line(row, self._landmarks[-1][1], is_heading=False))
            self._row = None
        self._flush_row()

    def _flush_row(self) -> None:
        for cell in self._row or ():
            for line in cell:
                self._add_line(line)
        self._row = None

    def _add_line(self, line: Line) -> None:
        self._size_bytes += len(line.text.encode())
        if len(self.lines) < MAX_LINES and self._size_bytes <= MAX_TEXT_BYTES:
            self.lines.append(line)


def _is_hidden(element: etree._Element) -> bool:
    if element.tag in _ROOTS:
        return False  # pages that hide these elements show them by a script
    return (
        element.tag in _HIDDEN_ELEMENTS
        or element.get("hidden") is not None
        or (element.tag == "dialog" and element.get("open") is None)
        or bool(_HIDING_STYLE.search(element.get("style") or ""))
    )
