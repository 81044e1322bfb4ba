"""Line diff of two versions of a page, and its conversion to the :class:`Change` objects that subscribers receive."""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from rapidfuzz.distance import LCSseq

from service.feeds.parsing.html_text import one_line
from service.model import Change, Entry, ParsedPage

MAX_CHANGES = 20
BLOCK_CHARS = 600
_TITLE_CHARS = 200
_CONTEXT_CHARS = 100
_MANY_LINES = 100
_MIN_KEPT_SHARE = 0.1
_MAX_COMPARED_PAIRS = 10_000 * 10_000
"""Maximum number of pairs (old line, new line) in a diff. A diff uses one bit for each pair; at the maximum it takes 12
MB and 30 ms."""


class Hunk(NamedTuple):
    """A difference between an old and a new text, each of which is a sequence of lines.

    The old lines ``old_start:old_end`` were replaced with the new lines ``new_start:new_end``. Indexes start at 0. One
    of the two ranges may be empty.
    """

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def diff_lines(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Return the differences between the texts ``old`` and ``new``, from first to last.

    Any two differences are separated by at least one line that the texts have in common.
    """
    # The common lines are a longest common subsequence. If 10,000 lines or more in each text lie between the common
    # beginning and the common end, these lines are one difference, because a diff of them would take too much memory.
    start = _common_length(old, new)
    tail = _common_length(old[start:][::-1], new[start:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    if (old_end - start) * (new_end - start) >= _MAX_COMPARED_PAIRS:
        return [Hunk(start, old_end, start, new_end)]
    hunks = []
    old_start = new_start = 0
    for block in LCSseq.editops(old, new).as_matching_blocks():
        if (old_start, new_start) != (block.a, block.b):
            hunks.append(Hunk(old_start, block.a, new_start, block.b))
        old_start, new_start = block.a + block.size, block.b + block.size
    return hunks


def _common_length(some: Sequence[str], others: Sequence[str]) -> int:
    pairs = enumerate(zip(some, others, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(some), len(others)))


def describe_changes(
    old: Sequence[str], page: ParsedPage, hunks: Sequence[Hunk], *, url: str, revision: int
) -> tuple[Change, ...]:
    """Describe the differences between the ``old`` lines of a page and its current content ``page``, in page order.

    - ``hunks`` are the differences. Each of the first 20 becomes a change of at most 600 characters. If there are more,
      one further change states how many were left out. If most of the page was rewritten, the result is a single
      change.
    - ``url`` is the link in each change.
    - ``revision`` is the sequence number of the page's version. It is part of each change's key, so that a change that
      occurs again later gets a new key.
    """
    # A change that is repeated later therefore gets a new key.
    if _is_rewritten(old, page.lines, hunks):
        return (_describe_rewrite(old, page, url, revision),)
    changes = [_change(old, page, hunk, url, revision) for hunk in hunks[:MAX_CHANGES]]
    omitted = hunks[MAX_CHANGES:]
    if omitted:
        text = f"… and {len(omitted):,} more changes: +{_added(omitted):,} −{_omitted(omitted):,} lines."  # noqa: RUF001 - a minus sign beside a plus
        line = omitted[0].new_start + 1
        changes.append(Change("replacement", Entry(_key(revision, line, text), link=url, summary=text), line))
    return tuple(changes)


def _describe_rewrite(old: Sequence[str], page: ParsedPage, url: str, revision: int) -> Change:
    text = _truncate(f"Rewritten: {len(page.lines):,} lines.\n" + "\n".join(page.lines[:BLOCK_CHARS]))
    entry = Entry(_key(revision, 1, text), title=page.title, link=url, summary=text)
    return Change("replacement", entry, 1, _truncate("\n".join(old[:BLOCK_CHARS])))


def _is_rewritten(old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk]) -> bool:
    largest = max(len(old), len(new))
    return largest >= _MANY_LINES and len(old) - _omitted(hunks) < _MIN_KEPT_SHARE * largest


def _change(old: Sequence[str], page: ParsedPage, hunk: Hunk, url: str, revision: int) -> Change:
    before = "\n".join(old[hunk.old_start : hunk.old_end])
    after = "\n".join(page.lines[hunk.new_start : hunk.new_end])
    line = hunk.new_start + 1
    title = _heading(page, hunk.new_start)
    if not after:
        line = hunk.old_start + 1
        key = _key(revision, -line, before)
        return Change("omission", Entry(key, title=title, link=url, summary=_truncate(before)), line)
    key = _key(revision, line, after)
    if not before:
        return Change("addition", Entry(key, title=title, link=url, summary=_truncate(after)), line)
    before, after = _excerpts(before, after)
    return Change("replacement", Entry(key, title=title, link=url, summary=after), line, before)


def _heading(page: ParsedPage, index: int) -> str:
    above = bisect_left(page.headings, index)
    return one_line(page.lines[page.headings[above - 1]], _TITLE_CHARS) if above else ""


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """Return the texts ``before`` and ``after``, each truncated to at most 600 characters.

    If one of the texts is longer, most of their common beginning is left out of both.
    """
    if max(len(before), len(after)) <= BLOCK_CHARS:
        return before, after
    common = _common_length(before, after)
    start = before.rfind(" ", 0, max(0, common - _CONTEXT_CHARS)) + 1
    mark = "…" if start else ""
    return _truncate(mark + before[start:]), _truncate(mark + after[start:])


def _truncate(text: str) -> str:
    return text if len(text) <= BLOCK_CHARS else text[: BLOCK_CHARS - 1].rstrip() + "…"


def _added(hunks: Sequence[Hunk]) -> int:
    return sum(hunk.new_end - hunk.new_start for hunk in hunks)


def _omitted(hunks: Sequence[Hunk]) -> int:
    return sum(hunk.old_end - hunk.old_start for hunk in hunks)


def _key(revision: int, line: int, text: str) -> str:
    return hashlib.blake2b(f"{revision} {line} {text}".encode(), digest_size=12).hexdigest()
