"""The table of the entries known of a channel: 32-byte rows, the most recently seen entry last.

A row holds the hashes of an entry, the day on which it was last seen, and the numbers of changes of its title and text.
Rows are addressed by their byte offsets and are not unpacked for a search: a poll that finds one new entry among 500
known entries unpacks hardly any row.
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
"""Up to this many hashes are searched for one by one; one scan of all rows costs as much as 20 searches."""

_LAST_SEEN = struct.Struct("<BH")
_LAST_SEEN_OFFSET = _HASHES.size - _LAST_SEEN.size
_COUNT_BITS = 4
_COUNT_MASK = (1 << _COUNT_BITS) - 1
ROW_BYTES = _HASHES.size


class LastSeen(NamedTuple):
    """The day (since 1970) on which an entry was last seen, and the numbers of edits of its title and its text.

    The numbers of edits are limited to 15.
    """

    day: int
    title_changes: int = 0
    text_changes: int = 0

    def pack(self) -> bytes:
        """Return the day and the edit counts as the last three bytes of a row."""
        return _LAST_SEEN.pack(self.title_changes << _COUNT_BITS | self.text_changes, self.day)


def pack_row(hashes: EntryHashes, last_seen: LastSeen) -> bytes:
    """Return the row of an entry: its ``hashes`` followed by ``last_seen``."""
    fields = (hashes.id, hashes.target, hashes.title, hashes.body, hashes.title_date, hashes.gist)
    return b"".join((*fields, last_seen.pack()))


def update_row(rows: bytes, offset: int, last_seen: LastSeen) -> bytes:
    """Return the row at ``offset`` with the same hashes and the new ``last_seen``."""
    return rows[offset : offset + _LAST_SEEN_OFFSET] + last_seen.pack()


def hashes_at(rows: bytes, offset: int) -> EntryHashes:
    """Return the hashes of the entry whose row is at ``offset``."""
    return EntryHashes(*_HASHES.unpack_from(rows, offset))


def last_seen_at(rows: bytes, offset: int) -> LastSeen:
    """Return the day on which the entry at ``offset`` was seen last, and its edit counts."""
    changes, day = _LAST_SEEN.unpack_from(rows, offset + _LAST_SEEN_OFFSET)
    return LastSeen(day, changes >> _COUNT_BITS, changes & _COUNT_MASK)


def last_offsets(rows: bytes, count: int) -> range:
    """Return the offsets of the last ``count`` rows, in descending order."""
    return range(len(rows) - ROW_BYTES, max(len(rows) - count * ROW_BYTES, 0) - 1, -ROW_BYTES)


def has_id(rows: bytes, offset: int) -> bool:
    """Return whether the entry whose row begins at the byte ``offset`` of the table ``rows`` has an id."""
    return not rows.startswith(NO_HASH, offset)


def remove_rows(rows: bytes, offsets: Iterable[int]) -> bytes:
    """Return ``rows`` without the rows at ``offsets``."""
    parts, start = [], 0
    for offset in sorted(offsets):
        parts.append(rows[start:offset])
        start = offset + ROW_BYTES
    return b"".join((*parts, rows[start:]))


def trim_rows(rows: bytes, *, largest_document: int, today: int) -> bytes:
    """Return ``rows`` without the rows at its beginning that exceed the limits on number and age.

    The last max(4 * ``largest_document``, 500) rows are kept; ``largest_document`` is a number of entries. Of the last
    2,000 rows, the rows seen within 90 days before ``today`` (days since 1970) are kept too.
    """
    count = len(rows) // ROW_BYTES
    first_by_count = count - max(MIN_ROWS, ROWS_PER_DOCUMENT_ENTRY * largest_document)
    first_by_age = bisect_left(
        range(count), today - RETENTION_DAYS, key=lambda index: last_seen_at(rows, index * ROW_BYTES).day
    )
    return rows[ROW_BYTES * max(min(first_by_count, first_by_age), count - MAX_ROWS, 0) :]


class CandidateRows(NamedTuple):
    """The known entries that may match an entry of the document, because they share a hash with it.

    A candidate key is a value that may identify an entry.

    - ``hashes`` maps the row offset of each of these known entries to the hashes of the entry.
    - ``counts`` maps each candidate key to the number of known entries that have it.
    - ``last_offset`` maps each candidate key to the row offset of the known entry that has it and was seen last.
    """

    hashes: dict[int, EntryHashes]
    counts: Counter[CandidateKey]
    last_offset: dict[CandidateKey, int]

    @classmethod
    def find(cls, entries: Collection[EntryHashes], rows: bytes) -> Self:
        """Return the known entries in ``rows`` that share a hash with one of ``entries``."""
        lookup_hashes = {digest for each in entries for digest in each.lookup_hashes()}
        find_offsets = _search_each if len(lookup_hashes) <= _MAX_SINGLE_SEARCHES else _scan
        hashes = {offset: hashes_at(rows, offset) for offset in find_offsets(rows, lookup_hashes)}
        pairs = [(key, offset) for offset, each in hashes.items() for key in each.all_candidate_keys()]
        return cls(hashes, Counter(key for key, _ in pairs), dict(pairs))

    def can_identify(self, key: CandidateKey, hashes: EntryHashes) -> bool:
        """Return whether ``key`` can identify an entry that has ``hashes``.

        It can if no known entry has this key, or if exactly one known entry has it and does not contradict ``hashes``.
        """
        count = self.counts[key]
        return count == 0 or (count == 1 and not hashes.contradicts(self.hashes[self.last_offset[key]]))


def _scan(rows: bytes, lookup_hashes: Collection[bytes]) -> Iterable[int]:
    """Return the offsets of the rows that contain at least one of the hashes in ``lookup_hashes``."""
    are_unrelated = map(set(lookup_hashes).isdisjoint, _LOOKUP_HASHES.iter_unpack(rows))
    return compress(range(0, len(rows), ROW_BYTES), map(not_, are_unrelated))


def _search_each(rows: bytes, lookup_hashes: Collection[bytes]) -> Iterable[int]:
    """Return the offsets of the rows that contain a hash in ``lookup_hashes`` at any byte position.

    The result includes all offsets that :func:`_scan` returns, and may include others. For few hashes this function is
    faster.
    """
    found = set()
    for digest in lookup_hashes:
        position = rows.find(digest)
        while position >= 0:
            found.add(position - position % ROW_BYTES)
            position = rows.find(digest, position + HASH_BYTES)
    return sorted(found)
