"""The entries that are remembered of a channel, packed in rows of 32 bytes, those seen last at the end. Pure.

A row is found by its offset. To be looked through, rows are not unpacked: a poll that finds one new entry
among 500 old ones needs hardly any of them.
"""

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import compress
from operator import not_
from typing import NamedTuple, Self

from service.feeds.limits import MAX_ENTRIES
from service.feeds.traces import NO_TRACE, TRACE_BYTES, Token, Traces

MIN_REMEMBERED = 500
REMEMBERED_DOCUMENTS = 4
MAX_REMEMBERED = REMEMBERED_DOCUMENTS * MAX_ENTRIES
REMEMBERED_DAYS = 90

_TRACES = struct.Struct("<5s5s5s5s5s4s3x")
_BEGINNINGS = struct.Struct("<5s5s5x5s5s7x")
_FEW = 20
"""Up to so many traces are looked up one by one; looking through all rows costs as much as 20 of them."""

_SEEN = struct.Struct("<BH")
_SEEN_AT = _TRACES.size - _SEEN.size
_COUNT_BITS = 4
_COUNT = (1 << _COUNT_BITS) - 1
ROW_BYTES = _TRACES.size


class Seen(NamedTuple):
    """On which day (since 1970) an entry was seen last, and how often its title and text had changed (at most 15)."""

    day: int
    title_changes: int = 0
    text_changes: int = 0

    def packed(self) -> bytes:
        """Return the end of a row."""
        return _SEEN.pack(self.title_changes << _COUNT_BITS | self.text_changes, self.day)


def packed(traces: Traces, seen: Seen) -> bytes:
    """Return a row."""
    hashes = (traces.id, traces.place, traces.title, traces.body, traces.dated, traces.gist)
    return b"".join((*hashes, seen.packed()))


def repacked(rows: bytes, at: int, seen: Seen) -> bytes:
    """Return the row at this offset as it is when its entry, unchanged, is seen again."""
    return rows[at : at + _SEEN_AT] + seen.packed()


def traces_at(rows: bytes, at: int) -> Traces:
    """Return the traces in the row at this offset."""
    return Traces(*_TRACES.unpack_from(rows, at))


def seen_at(rows: bytes, at: int) -> Seen:
    """Return when the entry in the row at this offset was seen last, and as what."""
    changes, day = _SEEN.unpack_from(rows, at + _SEEN_AT)
    return Seen(day, changes >> _COUNT_BITS, changes & _COUNT)


def last_offsets(rows: bytes, count: int) -> range:
    """Return the offsets of the last rows, the last first."""
    return range(len(rows) - ROW_BYTES, max(len(rows) - count * ROW_BYTES, 0) - 1, -ROW_BYTES)


def has_id(rows: bytes, at: int) -> bool:
    """Say whether the entry in the row at this offset has an id."""
    return not rows.startswith(NO_TRACE, at)


def without(rows: bytes, offsets: Iterable[int]) -> bytes:
    """Return the rows without those at the offsets."""
    parts, start = [], 0
    for at in sorted(offsets):
        parts.append(rows[start:at])
        start = at + ROW_BYTES
    return b"".join((*parts, rows[start:]))


def kept(rows: bytes, *, largest_document: int, today: int) -> bytes:
    """Return what is still remembered: max(4 documents, 500) rows, and of the last 2,000 those of 90 days."""
    count = len(rows) // ROW_BYTES
    surely = count - max(MIN_REMEMBERED, REMEMBERED_DOCUMENTS * largest_document)
    recently = bisect_left(
        range(count), today - REMEMBERED_DAYS, key=lambda place: seen_at(rows, place * ROW_BYTES).day
    )
    return rows[ROW_BYTES * max(min(surely, recently), count - MAX_REMEMBERED, 0) :]


class Kin(NamedTuple):
    """The remembered entries that share a trace with some of a document, by the offsets of their rows.

    ``counts`` says how many of them have a token, ``last`` which of these was seen last.
    """

    traces: dict[int, Traces]
    counts: Counter[Token]
    last: dict[Token, int]

    @classmethod
    def of(cls, listed: Collection[Traces], rows: bytes) -> Self:
        """Return the rows that can matter for these entries."""
        beginnings = {trace for each in listed for trace in each.beginnings()}
        look_up = _looked_up if len(beginnings) <= _FEW else _looked_through
        traces = {at: traces_at(rows, at) for at in look_up(rows, beginnings)}
        pairs = [(token, at) for at, each in traces.items() for token in each.every_token()]
        return cls(traces, Counter(token for token, _ in pairs), dict(pairs))

    def trust(self, token: Token, traces: Traces) -> bool:
        """Say whether the token has meant one entry so far, and can mean this one."""
        count = self.counts[token]
        return count == 0 or (count == 1 and not traces.contradicts(self.traces[self.last[token]]))


def _looked_through(rows: bytes, beginnings: Collection[bytes]) -> Iterable[int]:
    """Return the offsets of the rows that have one of these traces."""
    strangers = map(set(beginnings).isdisjoint, _BEGINNINGS.iter_unpack(rows))
    return compress(range(0, len(rows), ROW_BYTES), map(not_, strangers))


def _looked_up(rows: bytes, beginnings: Collection[bytes]) -> Iterable[int]:
    """Return the same, and perhaps the offset of a row that happens to have the bytes somewhere else."""
    found = set()
    for trace in beginnings:
        at = rows.find(trace)
        while at >= 0:
            found.add(at - at % ROW_BYTES)
            at = rows.find(trace, at + TRACE_BYTES)
    return sorted(found)
