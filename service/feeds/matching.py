"""Which remembered entry each entry of a document is, if any. Pure.

Most entries are exactly as they were in the last document. They are recognised by one hash, their
*fingerprint*, and nothing more is asked about them; the others by their tokens (``identity`` has the rules).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from service.feeds.remembered import Kin, has_id
from service.feeds.traces import NO_TRACE, Traces, fingerprint, traces_of
from service.model import ParsedEntry, ParsedFeed

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
