"""Which entries are new and which are edited: identity decided per channel, by what that channel does. Pure.

Every entry leaves *traces* in the channel's state: hashes of its id, of where it leads, of its title
and of its content. A *token* is one trace, or a pair of them, that may identify an entry. An entry's
key is its first token, from the most to the least trustworthy, that no other entry of the document
and no two remembered entries share; it is new if nothing remembered has that token.

- An id that several entries share therefore counts only together with the link, title or content.
- If all ids of a document are new although at least half of its entries are known by everything
  else, the channel makes up its ids at every poll: they are ignored from then on.
- Of several that are one remembered entry, the first is that entry, and the others are left out for as long
  as they stay in the document.
- Dates decide only between entries that have neither id nor link and are alike in everything else.
- A known entry with another title or text is edited, if that looks like somebody's work (``edits``).
- Remembered are the last max(4 times the largest document, 500) entries, and of the 2,000 last ones those
  seen in the last 90 days; what was seen longest ago goes first. What the document holds stays, and
  nothing goes because it is absent: a feed may shrink to nothing and return.
- A channel that has listed nothing so far, and now lists much, is rather a feed that was broken than a
  publisher that wrote it all since: what is dated before the first poll is old, and of what has no date
  the first 3 are news. (All would be a flood; none would hide the first entry of a new blog.)
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, repeat
from typing import NamedTuple

import msgspec

from service.feeds.entries.fingerprints import NO_TRACE, TRACE_BYTES, differ, homes_of, site_hash
from service.feeds.entries.known_entries import (
    ROW_BYTES,
    Item,
    Kin,
    Seen,
    kept,
    last_offsets,
    listed,
    match,
    packed,
    repacked,
    seen_at,
    without,
)
from service.feeds.entries.unchanged_entries import PreviousDocument
from service.feeds.parsing.html_text import one_line, plain_text
from service.feeds.urls import web_link
from service.model import Entry, ParsedEntry, ParsedFeed

TITLE_CHARS = 200
SUMMARY_CHARS = 600
_NAME_CHARS = 60
_NAME_COUNT = 8
CLOCK_ERROR_S = 86400.0


def published_s(entry: ParsedEntry, *, now_s: float) -> float | None:
    """Return when the entry was published, or else updated; None if that is more than a day ahead of ``now_s``."""
    date = entry.published if entry.published is not None else entry.updated
    return date if date is not None and date <= now_s + CLOCK_ERROR_S else None


def to_entry(entry: ParsedEntry, key: str, *, now_s: float) -> Entry:
    """Return the entry in plain text, short, with a link that is safe to show."""
    return Entry(
        key=key,
        title=one_line(entry.title, TITLE_CHARS),
        link=web_link(entry.link) or web_link(entry.enclosure),
        summary=plain_text(entry.summary or entry.content, SUMMARY_CHARS),
        authors=tuple(one_line(name, _NAME_CHARS) for name in entry.authors[:_NAME_COUNT]),
        tags=tuple(one_line(name, _NAME_CHARS) for name in entry.tags[:_NAME_COUNT]),
        published=published_s(entry, now_s=now_s),
    )


QUIET_DAYS = 30
MAX_CORRECTIONS = 3
MAX_EDITS_PER_POLL = 10
SAMPLE = 20
_FEWEST = 3


class Verdict(NamedTuple):
    """For each known entry of a document, whether to tell its change, and how often it has changed by now.

    ``quiet_until`` is the day (since 1970) through which nothing is told.
    """

    told: Sequence[bool]
    changes: Sequence[int]
    quiet_until: int


def judge(
    changed: Sequence[bool], changes_before: Sequence[int], days: Sequence[int], quiet_until: int, today: int
) -> Verdict:
    """Return which changes to tell of a document's known entries, in document order.

    ``changes_before`` are how often they had changed by the ``days`` (since 1970) when they were seen last;
    in both, other entries, which the document does not list, follow them, the latest first.
    """
    pairs = zip(changes_before, days, strict=True)
    before = [0 if day <= quiet_until < today else changes for changes, day in pairs]
    listed, others = before[: len(changed)], before[len(changed) :]
    if not any(changed):
        return Verdict(changed, listed, quiet_until)
    changes = [min(count + now, MAX_CORRECTIONS) for count, now in zip(listed, changed, strict=True)]
    if _is_restless(changed, [*changes, *others][:SAMPLE]):
        quiet_until = today + QUIET_DAYS
    told = [now and count < MAX_CORRECTIONS and quiet_until < today for count, now in zip(listed, changed, strict=True)]
    return Verdict(told, changes, quiet_until)


def _is_restless(changed: Sequence[bool], changes: Sequence[int]) -> bool:
    at_once, ever = sum(changed), len(changes) - changes.count(0)
    return (
        at_once > MAX_EDITS_PER_POLL
        or (at_once >= _FEWEST and 2 * at_once > len(changed))
        or (ever >= _FEWEST and 2 * sum(changes) > len(changes))
    )


LATEST_COUNT = 10
UNDATED_AT_START = 3
_DAY_S = 86_400


class IdentityState(msgspec.Struct, frozen=True, array_like=True, tag="feed"):
    """What is remembered of a channel: at most 66 KiB.

    ``first_poll_s`` is when the channel began. ``rows`` are its entries (``remembered``); the last of them
    are those of the last document, whose ``fingerprints`` and ``marks`` (``familiar``; zeros where there is none)
    are here in the same order; ``left_out`` are those of what it listed besides, ``site`` is a hash of its URLs.
    Through the days ``titles_quiet_until`` and ``texts_quiet_until`` (since 1970) no edits of titles and of texts
    are told.
    Raises ValueError (:class:`msgspec.DecodeError` while decoding) for what :func:`decide` cannot have left.
    """

    first_poll_s: float
    rows: bytes = b""
    fingerprints: bytes = b""
    largest_document: int = 0
    ids_change: bool = False
    titles_quiet_until: int = -1
    texts_quiet_until: int = -1
    left_out: bytes = b""
    marks: bytes = b""
    site: bytes = b""

    def __post_init__(self) -> None:
        remembered, rest = divmod(len(self.rows), ROW_BYTES)
        listed, other_rest = divmod(len(self.fingerprints), TRACE_BYTES)
        marked = len(self.marks) in (0, len(self.fingerprints))
        if rest or other_rest or listed > remembered or len(self.left_out) % TRACE_BYTES or not marked:
            raise ValueError("these are not a channel's rows and fingerprints")

    def last_document(self) -> dict[bytes, int]:
        """Return the offsets of the last document's rows by their fingerprints."""
        marks = _cut(self.fingerprints)
        offsets = range(len(self.rows) - len(marks) * ROW_BYTES, len(self.rows), ROW_BYTES)
        return dict(zip(marks, offsets, strict=True))

    def familiar(self) -> PreviousDocument:
        """Return what of the next document need not be read."""
        pairs = zip(_cut(self.marks), _cut(self.fingerprints), strict=False)  # another version left no marks
        return PreviousDocument({mark: known for mark, known in pairs if mark != NO_TRACE}, self.site)


class EntryChanges(msgspec.Struct, frozen=True):
    """What to tell subscribers: what is ``new`` and what is ``edited``, oldest first.

    ``latest``, at the first poll only: up to 10 entries, newest first. ``gap``: not one entry of the document
    is known, though others are: polls were missed, and what was listed meanwhile may be in an archive.
    """

    state: IdentityState
    new: tuple[Entry, ...] = ()
    edited: tuple[Entry, ...] = ()
    latest: tuple[Entry, ...] = ()
    gap: bool = False


def detect_entry_changes(state: IdentityState | None, feed: ParsedFeed, *, url: str, now_s: float) -> EntryChanges:
    """Return what ``feed``, the present document of the channel ``url``, says, and what to remember of it.

    ``state`` is None at the first poll: everything is recorded and nothing is new. ``now_s`` (Unix
    time) tells possible dates from impossible ones.
    """
    before = state or IdentityState(now_s)
    today = int(now_s // _DAY_S)
    homes = homes_of(url, feed.link)
    items, left_out, kin, ids_change = match(
        listed(feed, before.familiar().fingerprints, homes=homes),
        homes=homes,
        rows=before.rows,
        last_document=before.last_document(),
        left_out=set(_cut(before.left_out)),
        ids_change=before.ids_change,
    )
    known = {item.row: item for item in items if item.row is not None}
    titles, texts = _verdicts(before, known, kin, today=today)
    seen = dict(zip(known, map(Seen, repeat(today), titles.changes, texts.changes), strict=False))
    largest_document = max(before.largest_document, len(items))
    after = IdentityState(
        first_poll_s=before.first_poll_s,
        rows=kept(_rows_after(before.rows, items, seen, today=today), largest_document=largest_document, today=today),
        fingerprints=b"".join(item.fingerprint for item in reversed(items)),
        largest_document=largest_document,
        ids_change=ids_change,
        titles_quiet_until=titles.quiet_until,
        texts_quiet_until=texts.quiet_until,
        left_out=b"".join(left_out),
        marks=b"".join(item.mark for item in reversed(items)) if feed.marks else b"",
        site=site_hash(url, feed.link),
    )
    if state is None:
        return EntryChanges(after, latest=_entries(_newest_first(items, now_s=now_s)[:LATEST_COUNT], now_s=now_s))
    new = _newest_first([item for item in items if item.row is None], now_s=now_s)
    if not before.rows:
        new = _since(before.first_poll_s, new, now_s=now_s)
    told = map(any, zip(titles.told, texts.told, strict=True))
    edited = _newest_first(list(compress(known.values(), told)), now_s=now_s)
    return EntryChanges(
        after,
        new=_entries(reversed(new), now_s=now_s),
        edited=_entries(reversed(edited), now_s=now_s),
        gap=bool(before.rows and new and not known),
    )


def _cut(fingerprints: bytes) -> list[bytes]:
    return [fingerprints[start : start + TRACE_BYTES] for start in range(0, len(fingerprints), TRACE_BYTES)]


def _verdicts(before: IdentityState, known: Mapping[int, Item], kin: Kin, *, today: int) -> tuple[Verdict, Verdict]:
    """Return which edits of titles, and which of texts, to tell of the ``known`` items, given by their rows."""
    pairs = [(item.traces, kin.traces[row]) if item.traces else None for row, item in known.items()]
    # The others tell how restless the channel is, which matters only if something may have changed.
    others = [row for row in last_offsets(before.rows, SAMPLE) if row not in known] if any(pairs) else []
    seen = [seen_at(before.rows, row) for row in (*known, *others)]
    days = [each.day for each in seen]
    titles = [pair is not None and differ(pair[0].title, pair[1].title) for pair in pairs]
    texts = [pair is not None and differ(pair[0].gist, pair[1].gist) for pair in pairs]
    return (
        judge(titles, [each.title_changes for each in seen], days, before.titles_quiet_until, today),
        judge(texts, [each.text_changes for each in seen], days, before.texts_quiet_until, today),
    )


def _rows_after(rows: bytes, items: Sequence[Item], seen: Mapping[int, Seen], *, today: int) -> bytes:
    """Return the rows with those of the document's ``items`` at the end, the last item first."""
    listed = []
    for item in reversed(items):
        now = Seen(today) if item.row is None else seen[item.row]
        if item.traces is not None:
            listed.append(packed(item.traces, now))
        elif item.row is not None:
            listed.append(repacked(rows, item.row, now))
    return without(rows, seen) + b"".join(listed)


def _newest_first(items: Sequence[Item], *, now_s: float) -> list[Item]:
    """Return the items by date where every one has a possible date, else in document order.

    Publishers put the newest first; items of the same date keep the document's order.
    """
    dated = [(date, item) for item in items if (date := published_s(item.entry, now_s=now_s)) is not None]
    newest = [item for _, item in sorted(dated, key=lambda pair: pair[0], reverse=True)]
    return newest if len(newest) == len(items) else list(items)


def _since(first_poll_s: float, items: Sequence[Item], *, now_s: float) -> list[Item]:
    """Return the items that are not clearly older than the first poll, and of those without a date 3."""
    dates = [published_s(item.entry, now_s=now_s) for item in items]
    undated = [place for place, date in enumerate(dates) if date is None][:UNDATED_AT_START]
    dated = [place for place, date in enumerate(dates) if date is not None and date >= first_poll_s - CLOCK_ERROR_S]
    return [items[place] for place in sorted(undated + dated)]


def _entries(items: Iterable[Item], *, now_s: float) -> tuple[Entry, ...]:
    return tuple(to_entry(item.entry, item.key, now_s=now_s) for item in items)
