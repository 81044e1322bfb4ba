"""Entries that stand in a document exactly as they stood in the channel's last one: they are not read again. Pure.

What an entry says follows from its element with all that is in it, from the base and the depth at which that
stands, and from the document's dialect: a *mark* is one hash of these. What identity makes of it follows
from the URLs of the channel and its site as well, which are compared once for the document.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from lxml import etree

from service.feeds.entries.fingerprints import TRACE_BYTES
from service.feeds.parsing.fast_parser_values import Element

MAX_HASHED_ENTRIES = 300
"""Entries of one document that are marked; what is remembered of a channel stays small, and longer ones are rare."""

# An entry is written out with all namespaces that it may use, and lxml compares each of them with all others.
_MOST_NAMESPACES = 50
_MOST_ATTRIBUTES = 20
_MOST_WRITTEN = 8
"""So many times as long as the document all its entries may be."""


class PreviousDocument(NamedTuple):
    """The entries of a channel's last document, fingerprints by marks; and its ``site_mark`` (``traces``)."""

    fingerprints: Mapping[bytes, bytes]
    site: bytes


class FullParseRequired(Exception):
    """Something follows from an entry that was passed over as familiar: the document has to be read in full."""


class ElementHasher:
    """The marks of a document's entries, as a walk through its ``size_bytes`` comes by them."""

    def __init__(self, familiar: PreviousDocument, size_bytes: int) -> None:
        self._familiar = familiar
        self._left_bytes = _MOST_WRITTEN * size_bytes
        self._parent: Element | None = None
        self._found: list[bytes] = []
        self._has_passed_over = False

    def passes_over(self, element: Element, where: str) -> bool:
        """Take in an entry's element and say whether it is familiar. Raises :class:`Unread`."""
        self._check(element)
        written = etree.tostring(element, encoding="utf-8", with_tail=False)
        self._left_bytes -= len(written)
        if self._left_bytes < 0 or len(self._found) == MAX_HASHED_ENTRIES:
            raise FullParseRequired
        mark = hashlib.sha1(where.encode() + b"\0" + written, usedforsecurity=False).digest()[:TRACE_BYTES]
        self._found.append(mark)
        is_familiar = mark in self._familiar.fingerprints
        self._has_passed_over |= is_familiar
        return is_familiar

    def _check(self, element: Element) -> None:
        parent = element.getparent()
        if parent is not self._parent and parent is not None:
            self._parent = parent
            if len(parent.nsmap) > _MOST_NAMESPACES:
                raise FullParseRequired
        if len(element.keys()) > _MOST_ATTRIBUTES:
            raise FullParseRequired

    def of(self, site: bytes) -> tuple[bytes, ...]:
        """Return the marks of a document that has this ``site_mark``. Raises :class:`Unread`."""
        if self._has_passed_over and site != self._familiar.site:
            raise FullParseRequired
        return tuple(self._found)
