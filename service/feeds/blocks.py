"""From the differences between two versions of a page to the changes people are told. Pure.

As in Corona (§3.4) a change says where it is, what is there now and whether it is an addition, an omission
or a replacement; and, for people, under which heading it stands.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence

from service.feeds.linediff import Hunk
from service.feeds.text import one_line
from service.model import Change, Entry, ParsedPage

MAX_CHANGES = 20
BLOCK_CHARS = 600
_TITLE_CHARS = 200
_CONTEXT_CHARS = 100
_MANY_LINES = 100
_HARDLY_ANY = 0.1


def changes_between(
    old: Sequence[str], page: ParsedPage, hunks: Sequence[Hunk], *, url: str, revision: int
) -> tuple[Change, ...]:
    """Return the changes that lead from the lines ``old`` to ``page``, in the order of the page.

    At most 20, of at most 600 characters each; one more says how many there are. ``revision`` counts the
    page's versions, so that a change which comes again has another key.
    """
    if _is_rewritten(old, page.lines, hunks):
        return (rewritten(old, page, url=url, revision=revision),)
    changes = [_change(old, page, hunk, url, revision) for hunk in hunks[:MAX_CHANGES]]
    untold = hunks[MAX_CHANGES:]
    if untold:
        text = f"… and {len(untold):,} more changes: +{_added(untold):,} −{_omitted(untold):,} lines."  # noqa: RUF001 - a minus sign beside a plus
        line = untold[0].new_start + 1
        changes.append(Change("replacement", Entry(_key(revision, line, text), link=url, summary=text), line))
    return tuple(changes)


def rewritten(old: Sequence[str], page: ParsedPage, *, url: str, revision: int) -> Change:
    """Return the one change that stands for so many that nobody would read them."""
    text = _shortened(f"Rewritten: {len(page.lines):,} lines.\n" + "\n".join(page.lines[:BLOCK_CHARS]))
    entry = Entry(_key(revision, 1, text), title=page.title, link=url, summary=text)
    return Change("replacement", entry, 1, _shortened("\n".join(old[:BLOCK_CHARS])))


def _is_rewritten(old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk]) -> bool:
    largest = max(len(old), len(new))
    return largest >= _MANY_LINES and len(old) - _omitted(hunks) < _HARDLY_ANY * largest


def _change(old: Sequence[str], page: ParsedPage, hunk: Hunk, url: str, revision: int) -> Change:
    before = "\n".join(old[hunk.old_start : hunk.old_end])
    after = "\n".join(page.lines[hunk.new_start : hunk.new_end])
    line = hunk.new_start + 1
    title = _heading(page, hunk.new_start)
    if not after:
        line = hunk.old_start + 1
        key = _key(revision, -line, before)
        return Change("omission", Entry(key, title=title, link=url, summary=_shortened(before)), line)
    key = _key(revision, line, after)
    if not before:
        return Change("addition", Entry(key, title=title, link=url, summary=_shortened(after)), line)
    before, after = _where_they_differ(before, after)
    return Change("replacement", Entry(key, title=title, link=url, summary=after), line, before)


def _heading(page: ParsedPage, place: int) -> str:
    above = bisect_left(page.headings, place)
    return one_line(page.lines[page.headings[above - 1]], _TITLE_CHARS) if above else ""


def _where_they_differ(before: str, after: str) -> tuple[str, str]:
    """Return both texts, shortened; of long ones without most of their common beginning."""
    if max(len(before), len(after)) <= BLOCK_CHARS:
        return before, after
    differing = (place for place, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    common = next(differing, min(len(before), len(after)))
    start = before.rfind(" ", 0, max(0, common - _CONTEXT_CHARS)) + 1
    mark = "…" if start else ""
    return _shortened(mark + before[start:]), _shortened(mark + after[start:])


def _shortened(text: str) -> str:
    return text if len(text) <= BLOCK_CHARS else text[: BLOCK_CHARS - 1].rstrip() + "…"


def _added(hunks: Sequence[Hunk]) -> int:
    return sum(hunk.new_end - hunk.new_start for hunk in hunks)


def _omitted(hunks: Sequence[Hunk]) -> int:
    return sum(hunk.old_end - hunk.old_start for hunk in hunks)


def _key(revision: int, line: int, text: str) -> str:
    return hashlib.blake2b(f"{revision} {line} {text}".encode(), digest_size=12).hexdigest()
