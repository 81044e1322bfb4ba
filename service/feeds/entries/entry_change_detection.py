"""Detection of the new and edited entries of a feed.

:func:`detect_entry_changes` compares a document (the feed's content at one poll) with the feed's :class:`FeedState`,
which remembers known entries. ``entry_identity`` matches the listed entries with known ones. ``edit_suppression``
selects the edits to report.

Known entries are remembered after the feed drops them, because a feed may become empty and recover:

- The max(4 n, 500) entries seen most recently are always kept, where n is the number of entries in the largest document
  so far.
- Other entries are kept if they were seen within the last 90 days, up to 2,000 entries in all.

If a feed has been empty so far and then lists many entries, most of these are not new. In this case, only two kinds of
entries are reported: those dated after the first poll, and the first 3 entries without a date.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat

import msgspec

from service.feeds.canonical_urls import web_link
from service.feeds.entries.edit_suppression import SAMPLE_SIZE, EditDecision, select_edits
from service.feeds.entries.entry_hashes import HASH_BYTES, NO_HASH, is_edited, own_urls, site_hash
from service.feeds.entries.entry_identity import DocumentEntry, entries_by_fingerprint, match_entries
from service.feeds.entries.known_entries import (
    ROW_BYTES,
    CandidateRows,
    LastSeen,
    last_offsets,
    last_seen_at,
    pack_row,
    remove_rows,
    trim_rows,
    update_row,
)
from service.feeds.entries.unchanged_entries import PreviousDocument
from service.feeds.parsing.html_text import one_line, plain_text
from service.model import Enclosure, Entry, ParsedEntry, ParsedFeed

TITLE_CHARS = 200
SUMMARY_CHARS = 2_000
_NAME_CHARS = 60
_NAME_COUNT = 8
CLOCK_ERROR_S = 86400.0
LATEST_COUNT = 10
UNDATED_AT_START = 3
_DAY_S = 86_400


class FeedState(msgspec.Struct, frozen=True, array_like=True, tag="feed"):
    """The stored state of a feed, with which the next document is compared. Its size is at most 66 KiB.

    Two hashes of each entry are stored: its *fingerprint* covers all its fields, its *element hash* covers its XML.

    - ``first_poll_s``: the Unix time of the first poll in seconds.
    - ``rows``: a table with one row of bytes per known entry. The rows of the previous document's entries come last.
    - ``fingerprints``: the fingerprints of the previous document's entries, in the order of the rows.
    - ``largest_document``: the number of entries in the largest document so far.
    - ``are_ids_unstable``: whether the publisher generates new ids at each request.
    - ``titles_quiet_until``: the last day (counted from 1970) on which no edits of titles are reported.
    - ``texts_quiet_until``: the same for edits of texts.
    - ``excluded``: the fingerprints of the previous document's duplicates and empty entries, which have no row.
    - ``element_hashes``: the element hashes, in the order of ``fingerprints``; all zeros for an entry without an XML
      element. Empty if the XML was not hashed.
    - ``site``: the :func:`site_hash` of the URLs of the feed and its site.

    Raises :class:`ValueError` if the lengths of the fields are inconsistent. When such a state is decoded, the decoder
    raises :class:`msgspec.DecodeError` instead.
    """

    first_poll_s: float
    rows: bytes = b""
    fingerprints: bytes = b""
    largest_document: int = 0
    are_ids_unstable: bool = False
    titles_quiet_until: int = -1
    texts_quiet_until: int = -1
    excluded: bytes = b""
    element_hashes: bytes = b""
    site: bytes = b""

    def __post_init__(self) -> None:
        known, rest = divmod(len(self.rows), ROW_BYTES)
        listed, other_rest = divmod(len(self.fingerprints), HASH_BYTES)
        has_element_hashes = len(self.element_hashes) in (0, len(self.fingerprints))
        if rest or other_rest or listed > known or len(self.excluded) % HASH_BYTES or not has_element_hashes:
            raise ValueError("these are not a channel's rows and fingerprints")

    def previous_rows(self) -> dict[bytes, int]:
        """Map the fingerprint of each entry of the previous document to the position of the entry's row.

        A fingerprint is one hash of all fields of an entry. The position is the offset in bytes in the table ``rows``.
        """
        fingerprints = _split(self.fingerprints)
        offsets = range(len(self.rows) - len(fingerprints) * ROW_BYTES, len(self.rows), ROW_BYTES)
        return dict(zip(fingerprints, offsets, strict=True))

    def previous_document(self) -> PreviousDocument:
        """Return the hashes by which the parser recognises unchanged entries, which it can skip."""
        # Not strict: the previous document may have been read without element hashes.
        pairs = zip(_split(self.element_hashes), _split(self.fingerprints), strict=False)
        fingerprints = {element_hash: known for element_hash, known in pairs if element_hash != NO_HASH}
        return PreviousDocument(fingerprints, self.site)


class EntryChanges(msgspec.Struct, frozen=True):
    """The changes found in a feed's document, and the state to store.

    - ``state``: the feed's state after this document.
    - ``new``, ``edited``: the new and the edited entries, oldest first.
    - ``latest``: at the first poll, excerpts of up to 10 entries, newest first; otherwise empty.
    - ``gap``: whether the document lists new entries but none of the feed's known entries. Polls have then probably
      missed entries. An older document, such as the feed's archive (RFC 5005), may contain these entries.
    """

    state: FeedState
    new: tuple[Entry, ...] = ()
    edited: tuple[Entry, ...] = ()
    latest: tuple[Entry, ...] = ()
    gap: bool = False


def detect_entry_changes(state: FeedState | None, feed: ParsedFeed, *, url: str, now_s: float) -> EntryChanges:
    """Find the new and edited entries in ``feed``, the current document of the channel ``url``.

    - ``state``: the state that the previous call returned. It is None at the first poll, at which no entry is new.
    - ``now_s``: the current Unix time in seconds. If an entry's date is more than a day after ``now_s``, the date is
      ignored.
    """
    before = state or FeedState(now_s)
    today = int(now_s // _DAY_S)
    homes = own_urls(url, feed.link)
    items, excluded, candidates, are_ids_unstable = match_entries(
        entries_by_fingerprint(feed, before.previous_document().fingerprints, homes=homes),
        homes=homes,
        rows=before.rows,
        previous_rows=before.previous_rows(),
        excluded=set(_split(before.excluded)),
        are_ids_unstable=before.are_ids_unstable,
    )
    known = {item.row_offset: item for item in items if item.row_offset is not None}
    titles, texts = _select_edits(before, known, candidates, today=today)
    last_seen = dict(zip(known, map(LastSeen, repeat(today), titles.edit_counts, texts.edit_counts), strict=False))
    largest_document = max(before.largest_document, len(items))
    rows = _update_rows(before.rows, items, last_seen, today=today)
    after = FeedState(
        first_poll_s=before.first_poll_s,
        rows=trim_rows(rows, largest_document=largest_document, today=today),
        fingerprints=b"".join(item.fingerprint for item in reversed(items)),
        largest_document=largest_document,
        are_ids_unstable=are_ids_unstable,
        titles_quiet_until=titles.quiet_until,
        texts_quiet_until=texts.quiet_until,
        excluded=b"".join(excluded),
        element_hashes=b"".join(item.element_hash for item in reversed(items)) if feed.element_hashes else b"",
        site=site_hash(url, feed.link),
    )
    if state is None:
        latest = _to_entries(_newest_first(items, now_s=now_s)[:LATEST_COUNT], now_s=now_s)
        return EntryChanges(after, latest=tuple(entry.excerpt() for entry in latest))
    new = _newest_first([item for item in items if item.row_offset is None], now_s=now_s)
    if not before.rows:
        new = _published_since(before.first_poll_s, new, now_s=now_s)
    is_reported = map(any, zip(titles.is_reported, texts.is_reported, strict=True))
    edited = _newest_first(list(compress(known.values(), is_reported)), now_s=now_s)
    return EntryChanges(
        after,
        new=_to_entries(reversed(new), now_s=now_s),
        edited=_to_entries(reversed(edited), now_s=now_s),
        gap=bool(before.rows and new and not known),
    )


def _published_s(entry: ParsedEntry, *, now_s: float) -> float | None:
    """Return the Unix time at which an entry was published, or was last updated if the publication time is unknown.

    The result is None if the entry has no date, or if the date is more than a day after ``now_s``.
    """
    date = entry.published if entry.published is not None else entry.updated
    return date if date is not None and date <= now_s + CLOCK_ERROR_S else None


def _split(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]


def _select_edits(
    before: FeedState, known: Mapping[int, DocumentEntry], candidates: CandidateRows, *, today: int
) -> tuple[EditDecision, EditDecision]:
    """Decide which edits to report; return the decisions as a tuple (for titles, for texts).

    A row is a known entry's record in the table ``before.rows``. Its offset is its position in the table in bytes.

    - ``before``: the state after the previous poll.
    - ``known``: the document's entries that were already known, each under the offset of its row.
    - ``candidates``: contains the previous hashes of the entries that have changed.
    - ``today``: the current day, as a number of days since 1970.
    """
    pairs = [(item.hashes, candidates.hashes[offset]) if item.hashes else None for offset, item in known.items()]
    # Entries that are no longer listed show the edit rate, which matters only if an entry may have changed.
    unlisted = (
        [offset for offset in last_offsets(before.rows, SAMPLE_SIZE) if offset not in known] if any(pairs) else []
    )
    last_seen = [last_seen_at(before.rows, offset) for offset in (*known, *unlisted)]
    days = [each.day for each in last_seen]
    titles = [pair is not None and is_edited(pair[0].title, pair[1].title) for pair in pairs]
    texts = [pair is not None and is_edited(pair[0].gist, pair[1].gist) for pair in pairs]
    return (
        select_edits(titles, [each.title_changes for each in last_seen], days, before.titles_quiet_until, today),
        select_edits(texts, [each.text_changes for each in last_seen], days, before.texts_quiet_until, today),
    )


def _update_rows(
    rows: bytes, items: Sequence[DocumentEntry], last_seen: Mapping[int, LastSeen], *, today: int
) -> bytes:
    """Return the table of known entries, updated with the entries ``items`` of a document.

    The rows of these entries are moved or added to the end of the table, in reverse document order.

    - ``rows``: the table before the update, with one row of bytes per entry.
    - ``last_seen``: the day and the numbers of edits to store for each entry that was already known. The key is the
      position of the entry's row.
    - ``today``: the current day, as a number of days since 1970.
    """
    listed = []
    for item in reversed(items):
        seen = LastSeen(today) if item.row_offset is None else last_seen[item.row_offset]
        if item.hashes is not None:
            listed.append(pack_row(item.hashes, seen))
        elif item.row_offset is not None:
            listed.append(update_row(rows, item.row_offset, seen))
    return remove_rows(rows, last_seen) + b"".join(listed)


def _newest_first(items: Sequence[DocumentEntry], *, now_s: float) -> list[DocumentEntry]:
    """Return the entries sorted newest first if all have a valid date; otherwise in document order.

    ``now_s`` is the current Unix time in seconds. A date more than a day after it is not valid.
    """
    # Entries of the same date keep the document order, because most publishers list the newest entry first.
    dates = [_published_s(item.entry, now_s=now_s) for item in items]
    if None in dates:
        return list(items)
    return [items[index] for index in sorted(range(len(items)), key=lambda index: dates[index] or 0.0, reverse=True)]


def _published_since(first_poll_s: float, items: Sequence[DocumentEntry], *, now_s: float) -> list[DocumentEntry]:
    """Return those of ``items`` that are dated after the feed's first poll, and the first 3 of the undated ones.

    ``first_poll_s`` and ``now_s`` (the current time) are Unix times in seconds. Clocks differ. Therefore dates up to a
    day before the first poll are accepted. An entry dated more than a day after ``now_s`` counts as undated.
    """
    dates = [_published_s(item.entry, now_s=now_s) for item in items]
    undated = [index for index, date in enumerate(dates) if date is None][:UNDATED_AT_START]
    dated = [index for index, date in enumerate(dates) if date is not None and date >= first_poll_s - CLOCK_ERROR_S]
    return [items[index] for index in sorted(undated + dated)]


def _to_entries(items: Iterable[DocumentEntry], *, now_s: float) -> tuple[Entry, ...]:
    """Convert entries to the form in which they are stored and delivered.

    Texts are plain and truncated, and links are valid http or https URLs.
    """
    return tuple(
        Entry(
            key=item.key,
            title=one_line(item.entry.title, TITLE_CHARS),
            link=web_link(item.entry.link) or web_link(item.entry.enclosure),
            summary=plain_text(item.entry.summary or item.entry.content, SUMMARY_CHARS),
            authors=tuple(one_line(name, _NAME_CHARS) for name in item.entry.authors[:_NAME_COUNT]),
            tags=tuple(one_line(name, _NAME_CHARS) for name in item.entry.tags[:_NAME_COUNT]),
            published=_published_s(item.entry, now_s=now_s),
            image=web_link(item.entry.image),
            enclosures=tuple(_valid_files(item.entry.enclosures)),
        )
        for item in items
    )


def _valid_files(enclosures: Iterable[Enclosure]) -> Iterator[Enclosure]:
    """Yield the enclosures that have a valid http or https URL, with the URL in canonical form."""
    for each in enclosures:
        if link := web_link(each.url):
            yield msgspec.structs.replace(each, url=link)
