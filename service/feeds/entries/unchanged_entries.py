"""Recognises entries whose XML has not changed since the feed's previous document, so that the parser can skip them.

The *element hash* of an entry covers everything that the parser reads for the entry: the XML element with its content,
and the element's base URL, depth and dialect.

The *fingerprint* of an entry is a single hash of all its fields. It also depends on the URLs of the feed and its site.
Therefore entries can be skipped only if these URLs are the same as in the previous document. This is checked once per
document (:func:`entry_hashes.site_hash`).
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from lxml import etree

from service.feeds.entries.entry_hashes import HASH_BYTES
from service.feeds.parsing.fast_parser_values import Element

MAX_HASHED_ENTRIES = 300
"""Maximum number of entries in a document for which element hashes are computed, to limit the size of the stored state.
Longer documents are rare."""

MAX_NAMESPACES = 500
"""Maximum number of namespace declarations in a document for which element hashes are computed. lxml serializes an
entry with all declarations that are in scope, and compares each of them with all others."""
_MAX_SERIALIZED_RATIO = 8
"""Maximum ratio of the size of all serialized entries to that of the document; beyond it, no element hashes are
computed."""


class PreviousDocument(NamedTuple):
    """The hashes of a feed's previous document, used to recognise unchanged entries.

    - ``fingerprints`` maps the hash of each entry's XML to the hash of all fields of the entry.
    - ``site`` is the hash of the URLs of the feed and its site.
    """

    # Fingerprints depend on these URLs.

    fingerprints: Mapping[bytes, bytes]
    site: bytes


class FullParseRequired(Exception):
    """Raised if the unchanged entries of a document cannot be skipped. The document must then be parsed in full."""


class ElementHasher:
    """Computes the hash of each entry's XML (its element hash) while a document of ``size_bytes`` bytes is parsed.

    Each hash is compared with those of the ``previous`` document, to find the unchanged entries.
    """

    def __init__(self, previous: PreviousDocument, size_bytes: int) -> None:
        self._previous = previous
        self._left_bytes = _MAX_SERIALIZED_RATIO * size_bytes
        self._hashes: list[bytes] = []
        self._has_skipped = False

    def skip_unchanged(self, element: Element, context: str) -> bool:
        """Record the hash of an entry's XML element; return whether the previous document has an entry with this hash.

        If the result is True, the caller must skip the entry. ``context`` is a text that contains the depth, the
        dialect and the base URL of the element. Raises :class:`FullParseRequired` if hashing would cost too much.
        """
        serialized = etree.tostring(element, encoding="utf-8", with_tail=False)
        self._left_bytes -= len(serialized)
        if self._left_bytes < 0 or len(self._hashes) == MAX_HASHED_ENTRIES:
            raise FullParseRequired
        element_hash = hashlib.sha1(context.encode() + b"\0" + serialized, usedforsecurity=False).digest()[:HASH_BYTES]
        self._hashes.append(element_hash)
        is_unchanged = element_hash in self._previous.fingerprints
        self._has_skipped |= is_unchanged
        return is_unchanged

    def finish(self, site: bytes) -> tuple[bytes, ...]:
        """Return the XML hashes of all entries, in document order.

        ``site`` is the hash of the URLs of the feed and its site. Raises :class:`FullParseRequired` if entries were
        skipped although the previous document had a different ``site``.
        """
        if self._has_skipped and site != self._previous.site:
            raise FullParseRequired
        return tuple(self._hashes)
