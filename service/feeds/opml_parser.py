"""A tolerant parser of OPML files (subscription lists), which runs in the ``sandbox``.

Each feed is returned once. Its folder is the innermost outline with a name that contains it, or else its category. The
parser reads as much as possible of files with stray ampersands, wrong encodings or invalid URLs. It reports each
problem with its line number. It does not resolve entities, DTDs or inclusions.

The file is passed to lxml in pieces, without building a tree. There are limits on the number of outlines, the number of
tags, the depth, and the size of the result.
"""

import re
from collections.abc import Mapping

from lxml import etree

from service.errors import BadUrl, UserError
from service.feeds.canonical_urls import canonical_url, page_url, selector_of, without_selector
from service.feeds.opml_writer import MAX_OUTLINES, PAGE, OpmlDocument, OpmlSubscription
from service.feeds.parsing.charset import decode_document
from service.feeds.parsing.field_limits import FIELD_CHARS, NAME_CHARS, NOT_XML
from service.feeds.parsing.html_text import one_line

MAX_DEPTH = 20

_MAX_SYNTAX_ERRORS = 100
_SHOWN_CHARS = 100
_MAX_TAGS = 4 * MAX_OUTLINES
_MAX_CHARS = 4_000_000
"""Maximum total length of the URLs, titles and folders in the result. A folder's name counts once for each feed in the
folder."""
_ENTITY = re.compile(r"<!ENTITY", re.IGNORECASE)
_STRAY_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")
# From a bracket to the end of its line, so that the line of each tag is known; else up to the next bracket.
_PIECE = re.compile(r"[<>][^\n]*\n?|[^<>]+")


class _LimitReached(Exception):
    """Raised if a file exceeds the limit on the number of outlines, the number of tags or the size of the result."""


def parse(body: bytes) -> OpmlDocument:
    """Parse an OPML file; return its feeds and its problems.

    Raises :class:`UserError` if the file is not OPML or declares entities.
    """
    text = decode_document(body, "")
    if _ENTITY.search(text):
        raise UserError("The file declares entities of its own, which OPML has no use for. It is not read.")
    collector = _OutlineCollector()
    collector.collect(text)
    return OpmlDocument(tuple(collector.feeds.values()), tuple(collector.problems), tuple(collector.lines.values()))


class _OutlineCollector:
    """Collects the feeds and the problems of one OPML file. lxml's parser calls its methods."""

    def __init__(self) -> None:
        self.feeds: dict[str, OpmlSubscription] = {}
        self.lines: dict[str, int] = {}
        """Maps the URL of each feed in ``feeds``, in the same order, to the line where it occurs first."""
        self.problems: list[str] = []
        self._line = 1
        self._root = ""
        self._tags = 0
        self._outlines = 0
        self._chars = 0
        self._folders: list[str] = []

    def collect(self, text: str) -> None:
        """Collect the feeds and the problems of the OPML file ``text``, which must not declare entities.

        Raises :class:`UserError` if the file is not OPML.
        """
        parser = etree.XMLParser(
            target=self,  # type: ignore[arg-type]  # lxml requires fewer methods than its stubs declare
            encoding="utf-8",  # whatever the file declares
            recover=True,
            load_dtd=False,
            no_network=True,
            huge_tree=False,
        )
        is_complete = True
        try:
            for piece in _PIECE.finditer(text):
                parser.feed(_STRAY_AMPERSAND.sub("&amp;", NOT_XML.sub("", piece[0])).encode())
                self._line += piece[0].count("\n")
            parser.close()
        except _LimitReached:
            is_complete = False
        except etree.XMLSyntaxError:  # the text has no tag at all
            pass
        if self._root != "opml":
            beginning = f"<{self._root}>" if self._root else "no tag"
            raise UserError(
                f"The file is not OPML: it begins with {beginning}. A feed is added by its address instead."
            )
        if not is_complete:
            self._add_problem(f"only the first {min(self._outlines, MAX_OUTLINES):,} outlines are read.", self._line)
            return
        for error in list(parser.feed_error_log)[:_MAX_SYNTAX_ERRORS]:
            self._add_problem(f"not well-formed: {one_line(error.message, _SHOWN_CHARS)}", error.line)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Handle a start tag (called by lxml's parser)."""
        name = one_line(tag.rpartition("}")[2].lower(), _SHOWN_CHARS)
        self._root = self._root or name
        self._tags += 1
        self._outlines += name == "outline"
        if self._outlines > MAX_OUTLINES or self._tags > _MAX_TAGS or self._chars > _MAX_CHARS:
            raise _LimitReached
        if name == "outline":
            self._add_outline({name.lower(): value for name, value in attributes.items()})

    def end(self, tag: str) -> None:
        """Handle an end tag (called by lxml's parser)."""
        if tag.rpartition("}")[2].lower() == "outline":
            self._folders.pop()

    def close(self) -> None:
        """Do nothing at the end of the file (called by lxml's parser)."""

    def _add_outline(self, attributes: Mapping[str, str]) -> None:
        title = one_line(attributes.get("title") or attributes.get("text", ""), FIELD_CHARS)
        kind = attributes.get("type", "").lower()
        address = attributes.get("url" if kind == PAGE else "xmlurl", "").strip()
        if len(self._folders) >= MAX_DEPTH:
            self._add_problem(f"in more than {MAX_DEPTH} folders, one in the other.", self._line)
        elif address:
            self._add_feed(address, title, attributes.get("category", ""), page=kind == PAGE)
        elif kind in {"include", "link"} or "htmlurl" in attributes:
            self._add_problem(f"“{title[:_SHOWN_CHARS]}” names no feed.", self._line)
        self._folders.append("" if address else title)

    def _add_feed(self, address: str, title: str, category: str, *, page: bool) -> None:
        try:
            url = page_url(without_selector(address), selector_of(address)) if page else canonical_url(address)
        except BadUrl as error:
            self._add_problem(str(error), self._line)
            return
        known = self.feeds.get(url, OpmlSubscription(url, page=page))
        title = known.title or ("" if title in {url, address} else title)
        named = (one_line(name, NAME_CHARS) for name in (known.folder, *reversed(self._folders), _category(category)))
        folder = next(filter(None, named), "")
        self.feeds[url] = OpmlSubscription(url, title, known.page, folder)
        self.lines.setdefault(url, self._line)
        self._chars += len(url) + len(title) + len(folder)

    def _add_problem(self, what: str, line: int) -> None:
        self.problems.append(f"Line {line}: {what}")


def _category(categories: str) -> str:
    """Return the name of the first category in ``categories``, the value of an OPML 2.0 attribute.

    The value is a comma-separated list of slash-separated paths. The name is the last part of the first path.
    """
    path = categories[:FIELD_CHARS].partition(",")[0]
    return path.strip(" /").rpartition("/")[2]
