"""Matches the entries of a feed's document with the known entries of the feed. Entries without a match are new.

1. Most entries are unchanged since the previous document. They are matched by their *fingerprint*, a single hash of all
   fields.
2. The others are matched by *candidate keys*. A candidate key is one or two hashes that may identify an entry. It is
   made from the entry's id, its target (link or enclosure) or its text.
3. The candidate keys of an entry are tried from the most to the least trustworthy.
4. The first candidate key that is unique in the document and belongs to at most one known entry becomes the *key* of
   the entry. If there is none, the last candidate key is used.
5. If no known entry has this key, a known entry with the same title and content is searched for. If that fails too, the
   entry is new.

Special cases:

- An id that several entries share identifies an entry only together with its target, title or content.
- If all ids are new, but at least half of the entries are known by their other fields, the publisher generates new ids
  for each request. From then on, the ids of this feed are ignored.
- If several entries match the same known entry, the first of them is taken to be that entry. The others are ignored as
  long as the document contains them.
- The date distinguishes two entries only if they have neither id nor target and are equal in all other fields.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from service.feeds.entries.entry_hashes import NO_HASH, EntryHashes, fingerprint, hash_entry
from service.feeds.entries.known_entries import CandidateRows, has_id
from service.model import ParsedEntry, ParsedFeed

_SKIPPED_ENTRY = ParsedEntry()


class DocumentEntry(NamedTuple):
    """An entry of a feed's document, and the known entry that it matches.

    - ``entry`` is the parsed entry. Its fields may be empty if the entry is unchanged since the previous document.
    - ``element_hash`` is a hash of the entry's XML element, or all zeros if there is no such element.
    - ``fingerprint`` is a single hash of all the fields that are read from the entry.
    - ``hashes`` are the hashes of the entry's fields; None if the entry is unchanged.
    - ``row_offset`` is the byte offset of the matching entry in the table of known entries; None if the entry is new.
    - ``key`` is the hex text of the hashes that identify the entry within its feed; "" if the entry is unchanged.
    """

    entry: ParsedEntry
    element_hash: bytes
    fingerprint: bytes
    hashes: EntryHashes | None
    row_offset: int | None
    key: str = ""


class MatchResult(NamedTuple):
    """The result of matching the entries of a document with the known entries of the feed.

    - ``entries`` are the distinct entries of the document, in document order.
    - ``excluded`` are the fingerprints (hashes of all fields) of the document's duplicate and empty entries.
    - ``candidates`` are the known entries that may match a new or changed entry.
    - ``are_ids_unstable`` is true if the publisher generates new ids for each request.
    """

    entries: list[DocumentEntry]
    excluded: list[bytes]
    candidates: CandidateRows
    are_ids_unstable: bool


def entries_by_fingerprint(
    feed: ParsedFeed, fingerprints: Mapping[bytes, bytes], *, homes: Sequence[str]
) -> dict[bytes, tuple[ParsedEntry, bytes]]:
    """Map the fingerprint of each entry of ``feed`` to (entry, element hash), in document order.

    A fingerprint is a single hash of all fields of an entry; an element hash is a hash of its XML.

    - ``fingerprints`` maps the element hashes of the previous document's entries to their fingerprints.
    - ``homes`` are the URLs of the feed and its site (see :func:`~service.feeds.entries.entry_hashes.own_urls`).

    An entry whose element hash is in ``fingerprints`` is unchanged. The parser has skipped it, so the result contains
    an empty entry in its place.
    """
    # The parser has skipped these entries, so that ``feed`` has only their element hashes.
    entries = iter(feed.entries)
    found: dict[bytes, tuple[ParsedEntry, bytes]] = {}
    for element_hash in feed.element_hashes or repeat(NO_HASH, len(feed.entries)):
        known = fingerprints.get(element_hash)
        entry = _SKIPPED_ENTRY if known else next(entries)
        found.setdefault(known or fingerprint(entry, homes=homes), (entry, element_hash))
    return found


def match_entries(
    entries: Mapping[bytes, tuple[ParsedEntry, bytes]],
    *,
    homes: Sequence[str],
    rows: bytes,
    previous_rows: Mapping[bytes, int],
    excluded: Collection[bytes],
    are_ids_unstable: bool,
) -> MatchResult:
    """Match the entries of a document with the known entries in the table ``rows`` (see ``known_entries``).

    - ``entries`` is the result of :func:`entries_by_fingerprint` for the document.
    - ``homes`` are the URLs of the feed and its site (see :func:`~service.feeds.entries.entry_hashes.own_urls`).
    - ``previous_rows`` maps the fingerprint of each entry of the previous document to the byte offset of its row in
      ``rows``.
    - ``excluded`` are the fingerprints of the previous document's duplicate and empty entries. Entries with these
      fingerprints are excluded again.
    - ``are_ids_unstable`` is true if the publisher is known to generate new ids for each request.
    """
    items = []
    for digest, (entry, element_hash) in entries.items():
        if digest in excluded:
            continue
        row_offset = previous_rows.get(digest)
        hashes = hash_entry(entry, homes=homes) if row_offset is None else None
        if hashes is None or not hashes.is_empty:
            items.append(DocumentEntry(entry, element_hash, digest, hashes, row_offset))
    changed = [each.hashes for each in items if each.hashes]
    candidates = CandidateRows.find(changed, rows)
    if not are_ids_unstable and _have_all_ids_changed(changed, candidates.hashes.values()):
        are_ids_unstable = not any(each.row_offset is not None and has_id(rows, each.row_offset) for each in items)
    items = list(_identify(items, candidates, with_ids=not are_ids_unstable))
    now_excluded = sorted(entries.keys() - {item.fingerprint for item in items})
    return MatchResult(items, now_excluded, candidates, are_ids_unstable)


def _identify(
    items: Collection[DocumentEntry], candidates: CandidateRows, *, with_ids: bool
) -> Iterator[DocumentEntry]:
    """Yield the distinct entries in ``items``, completed with their keys and the known entries that they match.

    A key identifies an entry within its feed. If several entries have the same key or match the same known entry, only
    the first of them is yielded. Unchanged entries are yielded as they are.

    - ``candidates`` are the known entries that may match.
    - ``with_ids`` is true if the entries' ids are trusted.
    """
    taken = {each.row_offset for each in items}
    present_hashes = [each.hashes for each in items if each.hashes]
    present_hashes += [hashes for offset, hashes in candidates.hashes.items() if offset in taken]
    present = Counter(key for each in present_hashes for key in each.candidate_keys(with_ids=with_ids))
    keys: set[str] = set()
    for item in items:
        if not item.hashes:
            yield item
            continue
        candidate_keys = item.hashes.candidate_keys(with_ids=with_ids)
        usable = [key for key in candidate_keys if present[key] == 1 and candidates.can_identify(key, item.hashes)]
        has_only_text = item.hashes.has_only_text(with_ids=with_ids)
        deciding = (usable or [candidate_keys[-1]])[: None if has_only_text else 1]
        row_offset = next((candidates.last_offset[key] for key in deciding if key in candidates.last_offset), None)
        if row_offset is None and not has_only_text:
            row_offset = _find_by_text(item.hashes, candidates, with_ids=with_ids)
            row_offset = None if row_offset in taken else row_offset
        key = b"".join(deciding[0]).hex()
        if key not in keys and (row_offset is None or row_offset not in taken):
            yield item._replace(row_offset=row_offset, key=key)
        keys.add(key)
        taken.add(row_offset)


def _find_by_text(hashes: EntryHashes, candidates: CandidateRows, *, with_ids: bool) -> int | None:
    """Find a known entry with the same title and content as ``hashes``; return the offset of its row.

    The offset is a position in the table of known entries, in bytes. The result is None if there is no such entry.

    If both entries have a target (link or enclosure), the targets must also be equal. If ``with_ids`` is true and both
    entries have an id, the ids must be equal, too.
    """
    offset = candidates.last_offset.get(hashes.text_keys()[0])
    if offset is None or candidates.hashes[offset].title != hashes.title:
        return None
    before = candidates.hashes[offset]
    ids_agree = not with_ids or before.id == hashes.id or NO_HASH in (before.id, hashes.id)
    targets_agree = before.target == hashes.target or NO_HASH in (before.target, hashes.target)
    return offset if ids_agree and targets_agree else None


def _have_all_ids_changed(listed: Sequence[EntryHashes], known: Collection[EntryHashes]) -> bool:
    """Return whether the publisher has probably changed the ids of all entries.

    This is the case if no id in ``listed`` is known, although at least half of the entries with an id are known by
    their other fields.

    - ``listed`` are the new or changed entries of the document.
    - ``known`` are the known entries that may match them.
    """
    with_ids = [each for each in listed if each.id != NO_HASH]
    if not with_ids or {each.id for each in with_ids} & {each.id for each in known}:
        return False
    targets, bodies = Counter(each.target for each in with_ids), Counter(each.body for each in with_ids)
    known_bodies = {(each.target, each.body) for each in known}
    known_titles = {(each.target, each.title) for each in known}
    known_dates = {(each.body, each.title_date) for each in known if each.title_date != NO_HASH}

    def is_known(each: EntryHashes) -> bool:
        if each.target != NO_HASH:
            is_listed_once = len(with_ids) > 1 and targets[each.target] == 1
            has_known_title = is_listed_once and (each.target, each.title) in known_titles
            return has_known_title or (each.target, each.body) in known_bodies
        if len(with_ids) == 1:
            return (each.body, each.title_date) in known_dates
        return bodies[each.body] == 1 and (each.target, each.body) in known_bodies

    return 2 * sum(map(is_known, with_ids)) >= len(with_ids)
