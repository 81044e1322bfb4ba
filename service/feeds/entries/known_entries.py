"""The table of a feed's known entries: one row of 32 bytes per entry, the most recently seen entry last.

A row holds the hashes of an entry, the day on which it was last seen, and how often its title and its text were edited.
A row is identified by its byte offset from the start of the table. A search unpacks only the rows that match.
"""

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import compress
from operator import not_
from typing import NamedTuple, Self

from service.feeds.entries.entry_hashes import HASH_BYTES, NO_HASH, CandidateKey, EntryHashes
from service.feeds.parsing.field_limits import MAX_ENTRIES

MIN_ROWS = 500
ROWS_PER_DOCUMENT_ENTRY = 4
MAX_ROWS = ROWS_PER_DOCUMENT_ENTRY * MAX_ENTRIES
RETENTION_DAYS = 90

_HASHES = struct.Struct("<5s5s5s5s5s4s3x")
_LOOKUP_HASHES = struct.Struct("<5s5s5x5s5s7x")
_MAX_SINGLE_SEARCHES = 20
"""Maximum number of hashes that are searched for one by one. For more hashes, all rows are scanned once instead, which
costs as much as 20 searches."""

_LAST_SEEN = struct.Struct("<BH")
_LAST_SEEN_OFFSET = _HASHES.size - _LAST_SEEN.size
_COUNT_BITS = 4
_COUNT_MASK = (1 << _COUNT_BITS) - 1
ROW_BYTES = _HASHES.size


class LastSeen(NamedTuple):
    """When a known entry was last seen in its feed, and how often its title and its text have been edited.

    ``day`` is a number of days since 1 January 1970. Each of the two numbers of edits must be at most 15.
    """

    day: int
    title_changes: int = 0
    text_changes: int = 0

    def pack(self) -> bytes:
        """Return the day and the edit counts packed into three bytes, the last three bytes of an entry's row."""
        return _LAST_SEEN.pack(self.title_changes << _COUNT_BITS | self.text_changes, self.day)


def pack_row(hashes: EntryHashes, last_seen: LastSeen) -> bytes:
    """Return the table row of a known entry, packed into bytes: its ``hashes`` followed by ``last_seen``."""
    fields = (hashes.id, hashes.target, hashes.title, hashes.body, hashes.title_date, hashes.gist)
    return b"".join((*fields, last_seen.pack()))


def update_row(rows: bytes, offset: int, last_seen: LastSeen) -> bytes:
    """Return a copy of one row of the table ``rows``, with ``last_seen`` as its new last-seen data.

    ``offset`` is the position in bytes at which the row begins.
    """
    return rows[offset : offset + _LAST_SEEN_OFFSET] + last_seen.pack()


def hashes_at(rows: bytes, offset: int) -> EntryHashes:
    """Return the hashes in the row that begins at the byte ``offset`` of the table ``rows``."""
    return EntryHashes(*_HASHES.unpack_from(rows, offset))


def last_seen_at(rows: bytes, offset: int) -> LastSeen:
    """Return the last-seen data in the row that begins at the byte ``offset`` of the table ``rows``."""
    changes, day = _LAST_SEEN.unpack_from(rows, offset + _LAST_SEEN_OFFSET)
    return LastSeen(day, changes >> _COUNT_BITS, changes & _COUNT_MASK)


def last_offsets(rows: bytes, count: int) -> range:
    """Return the byte offsets of the last ``count`` entries in the table ``rows``, in descending order."""
    return range(len(rows) - ROW_BYTES, max(len(rows) - count * ROW_BYTES, 0) - 1, -ROW_BYTES)


def has_id(rows: bytes, offset: int) -> bool:
    """Return whether the entry in the row that begins at the byte ``offset`` of the table ``rows`` has an id."""
    return not rows.startswith(NO_HASH, offset)


def remove_rows(rows: bytes, offsets: Iterable[int]) -> bytes:
    """Return the table ``rows`` without the rows that begin at the byte ``offsets``."""
    parts, start = [], 0
    for offset in sorted(offsets):
        parts.append(rows[start:offset])
        start = offset + ROW_BYTES
    return b"".join((*parts, rows[start:]))


def trim_rows(rows: bytes, *, largest_document: int, today: int) -> bytes:
    """Return the table ``rows`` without its oldest entries, to limit the table's size.

    An entry is kept if it is among the last max(4 * ``largest_document``, 500) entries or was seen within the 90 days
    before ``today``. At most the last 2,000 entries are kept.

    - ``largest_document`` is the number of entries in the feed's largest document so far.
    - ``today`` is the current day, counted from 1 January 1970.
    """
    count = len(rows) // ROW_BYTES
    first_by_count = count - max(MIN_ROWS, ROWS_PER_DOCUMENT_ENTRY * largest_document)
    first_by_age = bisect_left(
        range(count), today - RETENTION_DAYS, key=lambda index: last_seen_at(rows, index * ROW_BYTES).day
    )
    return rows[ROW_BYTES * max(min(first_by_count, first_by_age), count - MAX_ROWS, 0) :]


class CandidateRows(NamedTuple):
    """The known entries that may be the same as an entry of the document, because they share a hash with it.

    - ``hashes`` maps the row offset of each of these known entries to the entry's hashes.
    - ``counts`` maps each candidate key to the number of these known entries that have it.
    - ``last_offset`` maps each candidate key to the row offset of the most recently seen entry that has it.

    A row offset is the position of an entry's row in the table of known entries, in bytes. A candidate key consists of
    one or two hashes that may identify an entry.
    """

    hashes: dict[int, EntryHashes]
    counts: Counter[CandidateKey]
    last_offset: dict[CandidateKey, int]

    @classmethod
    def find(cls, entries: Collection[EntryHashes], rows: bytes) -> Self:
        """Return the known entries in the table ``rows`` that share a hash with one of ``entries``."""
        lookup_hashes = {digest for each in entries for digest in each.lookup_hashes()}
        find_offsets = _search_each if len(lookup_hashes) <= _MAX_SINGLE_SEARCHES else _scan
        hashes = {offset: hashes_at(rows, offset) for offset in find_offsets(rows, lookup_hashes)}
        pairs = [(key, offset) for offset, each in hashes.items() for key in each.all_candidate_keys()]
        return cls(hashes, Counter(key for key, _ in pairs), dict(pairs))

    def can_identify(self, key: CandidateKey, hashes: EntryHashes) -> bool:
        """Return whether ``key``, which was made from an entry's ``hashes``, can identify this entry.

        It can if no known entry has the key, or if exactly one has it and that known entry does not contradict
        ``hashes`` (:meth:`EntryHashes.contradicts`).
        """
        count = self.counts[key]
        return count == 0 or (count == 1 and not hashes.contradicts(self.hashes[self.last_offset[key]]))


def _scan(rows: bytes, lookup_hashes: Collection[bytes]) -> Iterable[int]:
    """Return the byte offsets of the known entries in ``rows`` that have at least one hash in ``lookup_hashes``."""
    are_unrelated = map(set(lookup_hashes).isdisjoint, _LOOKUP_HASHES.iter_unpack(rows))
    return compress(range(0, len(rows), ROW_BYTES), map(not_, are_unrelated))


def _search_each(rows: bytes, lookup_hashes: Collection[bytes]) -> Iterable[int]:
    """Return the byte offsets of the rows in ``rows`` that contain the bytes of a hash in ``lookup_hashes``.

    The result may include rows without any of these hashes, because the bytes of a hash can also occur by chance across
    two fields of a row.
    """
    # For few hashes this function is faster than :func:`_scan`.
    found = set()
    for digest in lookup_hashes:
        position = rows.find(digest)
        while position >= 0:
            found.add(position - position % ROW_BYTES)
            position = rows.find(digest, position + HASH_BYTES)
    return sorted(found)
