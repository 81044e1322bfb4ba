"""Recognition of entries whose XML has not changed since the feed's previous document, so that they are skipped.

The *element hash* of an entry is a hash of everything that the parser reads for it: its element with all content, its
base URL, its depth and its dialect. The *fingerprint* of an entry is one hash of all its fields. It also depends on the
URLs of the feed and its site, which are compared once per document (:func:`entry_hashes.site_hash`).
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from lxml import etree

from service.feeds.entries.entry_hashes import HASH_BYTES
from service.feeds.parsing.fast_parser_values import Element

MAX_HASHED_ENTRIES = 300
"""Maximum number of entries for which element hashes are computed; it bounds the state. Longer documents are rare."""

MAX_NAMESPACES = 500
"""Maximum number of namespace declarations in a document for which element hashes are computed. lxml serializes an
entry with all declarations that are in scope, and compares each of them with all others."""
_MAX_SERIALIZED_RATIO = 8
"""Maximum ratio of the size of all serialized entries to that of the document; beyond it, no element hashes are
computed."""


class PreviousDocument(NamedTuple):
    """The hashes of a feed's previous document, by which unchanged entries are recognised.

    - ``fingerprints`` maps the hash of each entry's XML to the hash of all fields of the entry.
    - ``site`` is the hash of the URLs of the feed and its site.
    """

    # Fingerprints depend on these URLs.

    fingerprints: Mapping[bytes, bytes]
    site: bytes


class FullParseRequired(Exception):
    """Raised if unchanged entries of a document cannot be skipped; the document is then parsed in full."""


class ElementHasher:
    """Computes the element hashes of a document of ``size_bytes`` bytes while the document is parsed.

    An element hash is a hash of an entry's XML; it is compared with the element hashes of the ``previous`` document.
    """

    def __init__(self, previous: PreviousDocument, size_bytes: int) -> None:
        self._previous = previous
        self._left_bytes = _MAX_SERIALIZED_RATIO * size_bytes
        self._hashes: list[bytes] = []
        self._has_skipped = False

    def skip_unchanged(self, element: Element, context: str) -> bool:
        """Record the hash of an entry's XML element. Return whether the previous document has an entry with this hash.

        The caller then skips the entry. ``context`` is the depth, the dialect and the base URL of the element. Raises
        :class:`FullParseRequired` if hashing would cost too much.
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
        """Return the hashes of the XML of all entries, in document order.

        ``site`` is the hash of the URLs of the feed and its site. Raises :class:`FullParseRequired` if entries were
        skipped although the previous document had another ``site``.
        """
        if self._has_skipped and site != self._previous.site:
            raise FullParseRequired
        return tuple(self._hashes)
