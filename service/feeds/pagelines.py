"""From an element tree to lines of text as a reader sees them, each with its part of the page. Pure.

A block is a line; a row of a table is one, with `` | `` between its cells, unless it is long or holds other
tables (it lays out the page then). White space collapses except for line breaks in ``pre``. Of links and
images only the text (``alt``) counts: their addresses carry sessions, sizes and signatures.
What no reader sees is left out: scripts, templates, embedded things, what is marked or styled as hidden.
"""

import re
from typing import NamedTuple

from lxml import etree

from service.feeds.text import one_line

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
