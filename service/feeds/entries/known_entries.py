"""The entries that are remembered of a channel, packed in rows of 32 bytes, those seen last at the end. Pure.

A row is found by its offset. To be looked through, rows are not unpacked: a poll that finds one new entry
among 500 old ones needs hardly any of them.

Most entries are exactly as they were in the last document. They are recognised by one hash, their *fingerprint*; the
others by their tokens (``identity`` has the rules).
"""

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from operator import not_
from typing import NamedTuple, Self

from service.feeds.entries.fingerprints import NO_TRACE, TRACE_BYTES, Token, Traces, fingerprint, traces_of
from service.feeds.parsing.limits import MAX_ENTRIES
from service.model import ParsedEntry, ParsedFeed

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


_LEFT_OUT = ParsedEntry()


class Item(NamedTuple):
    """An entry of the document, and the offset of the row that it is (None: it is new).

    ``traces`` is None if it is exactly as in that row, and then it needs no ``key``, and ``entry`` may be empty.
    """

    entry: ParsedEntry
    mark: bytes
    fingerprint: bytes
    traces: Traces | None
    row: int | None
    key: str = ""


class Matches(NamedTuple):
    """A document's items, none twice, in document order. ``kin`` has the rows of those that have traces.

    ``left_out`` are the fingerprints of what is no item: it is the same entry as one, or says nothing.
    """

    items: list[Item]
    left_out: list[bytes]
    kin: Kin
    ids_change: bool


def listed(
    feed: ParsedFeed, familiar: Mapping[bytes, bytes], *, homes: Sequence[str]
) -> dict[bytes, tuple[ParsedEntry, bytes]]:
    """Return the document's entries with their marks, by their fingerprints, which are known of those left out."""
    entries = iter(feed.entries)
    found: dict[bytes, tuple[ParsedEntry, bytes]] = {}
    for mark in feed.marks or repeat(NO_TRACE, len(feed.entries)):
        known = familiar.get(mark)
        entry = _LEFT_OUT if known else next(entries)
        found.setdefault(known or fingerprint(entry, homes=homes), (entry, mark))
    return found


def match(
    entries: Mapping[bytes, tuple[ParsedEntry, bytes]],
    *,
    homes: Sequence[str],
    rows: bytes,
    last_document: Mapping[bytes, int],
    left_out: Collection[bytes],
    ids_change: bool,
) -> Matches:
    """Return what is recognised among the ``rows`` of ``entries`` (as :func:`listed` returns them).

    ``homes`` are addresses of the channel and its site, ``last_document`` offsets of rows by fingerprint,
    ``left_out`` the fingerprints of what was no item of that document, and is none now. ``ids_change``: the
    channel is known to make up its ids; in the result, it is by now.
    """
    items = [
        item
        for found, (entry, mark) in entries.items()
        if found not in left_out and (item := _item(entry, mark, found, last_document.get(found), homes))
    ]
    unlike = [each.traces for each in items if each.traces]
    kin = Kin.of(unlike, rows)
    if not ids_change and _all_ids_changed(unlike, kin.traces.values()):
        ids_change = not any(each.row is not None and has_id(rows, each.row) for each in items)
    items = list(_identified(items, kin, with_ids=not ids_change))
    return Matches(items, sorted(entries.keys() - {item.fingerprint for item in items}), kin, ids_change)


def _item(entry: ParsedEntry, mark: bytes, found: bytes, row: int | None, homes: Collection[str]) -> Item | None:
    """Return the entry with the ``row`` that is exactly like it, if any, or its traces; None if it says nothing."""
    if row is not None:
        return Item(entry, mark, found, None, row)
    traces = traces_of(entry, homes=homes)
    return None if traces.is_empty else Item(entry, mark, found, traces, None)


def _identified(items: Collection[Item], kin: Kin, *, with_ids: bool) -> Iterator[Item]:
    """Yield the items with their rows and keys; of those with one key, or one row, only the first."""
    taken = {each.row for each in items}
    listed = [each.traces for each in items if each.traces]
    listed += [traces for row, traces in kin.traces.items() if row in taken]
    present = Counter(token for each in listed for token in each.tokens(with_ids=with_ids))
    keys: set[str] = set()
    for item in items:
        if not item.traces:
            yield item
            continue
        tokens = item.traces.tokens(with_ids=with_ids)
        usable = [token for token in tokens if present[token] == 1 and kin.trust(token, item.traces)]
        text_only = item.traces.has_text_only(with_ids=with_ids)
        deciding = (usable or [tokens[-1]])[: None if text_only else 1]
        row = next((kin.last[token] for token in deciding if token in kin.last), None)
        if row is None and not text_only:
            row = _row_of_text(item.traces, kin, with_ids=with_ids)
            row = None if row in taken else row
        key = b"".join(deciding[0]).hex()
        if key not in keys and (row is None or row not in taken):
            yield item._replace(row=row, key=key)
        keys.add(key)
        taken.add(row)


def _row_of_text(traces: Traces, kin: Kin, *, with_ids: bool) -> int | None:
    """Return the entry that had this very title and content, and has got or lost its id or its link since."""
    row = kin.last.get(traces.text_tokens()[0])
    if row is None or kin.traces[row].title != traces.title:
        return None
    before = kin.traces[row]
    ids_agree = not with_ids or before.id == traces.id or NO_TRACE in (before.id, traces.id)
    places_agree = before.place == traces.place or NO_TRACE in (before.place, traces.place)
    return row if ids_agree and places_agree else None


def _all_ids_changed(listed: Sequence[Traces], remembered: Collection[Traces]) -> bool:
    """Say whether every id is new though at least half of the entries that have one are old friends."""
    with_ids = [each for each in listed if each.id != NO_TRACE]
    if not with_ids or {each.id for each in with_ids} & {each.id for each in remembered}:
        return False
    places, bodies = Counter(each.place for each in with_ids), Counter(each.body for each in with_ids)
    old_bodies = {(each.place, each.body) for each in remembered}
    old_titles = {(each.place, each.title) for each in remembered}
    old_dates = {(each.body, each.dated) for each in remembered if each.dated != NO_TRACE}

    def is_old(each: Traces) -> bool:
        if each.place == NO_TRACE:
            alone = len(with_ids) == 1
            return (
                (each.body, each.dated) in old_dates
                if alone
                else (bodies[each.body] == 1 and (each.place, each.body) in old_bodies)
            )
        listed_once = len(with_ids) > 1 and places[each.place] == 1
        return (each.place, each.body) in old_bodies or (listed_once and (each.place, each.title) in old_titles)

    return 2 * sum(map(is_old, with_ids)) >= len(with_ids)
