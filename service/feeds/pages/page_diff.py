"""The description of a page's line differences as :class:`Change` objects for subscribers."""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence

from service.feeds.pages.line_diff import Hunk
from service.feeds.parsing.html_text import one_line
from service.model import Change, Entry, ParsedPage

MAX_CHANGES = 20
BLOCK_CHARS = 600
_TITLE_CHARS = 200
_CONTEXT_CHARS = 100
_MANY_LINES = 100
_MIN_KEPT_SHARE = 0.1


def describe_changes(
    old: Sequence[str], page: ParsedPage, hunks: Sequence[Hunk], *, url: str, revision: int
) -> tuple[Change, ...]:
    """Return the changes from the lines ``old`` to ``page``, in page order.

    ``hunks`` are the differences. Each of the first 20 becomes a change of at most 600 characters; one more change
    states the number of others. ``revision`` is the number of the page's version. It is part of the changes' keys, so
    that a repeated change gets a new key. ``url`` is the link of each change.
    """
    if _is_rewritten(old, page.lines, hunks):
        return (describe_rewrite(old, page, url=url, revision=revision),)
    changes = [_change(old, page, hunk, url, revision) for hunk in hunks[:MAX_CHANGES]]
    omitted = hunks[MAX_CHANGES:]
    if omitted:
        text = f"… and {len(omitted):,} more changes: +{_added(omitted):,} −{_omitted(omitted):,} lines."  # noqa: RUF001 - a minus sign beside a plus
        line = omitted[0].new_start + 1
        changes.append(Change("replacement", Entry(_key(revision, line, text), link=url, summary=text), line))
    return tuple(changes)


def describe_rewrite(old: Sequence[str], page: ParsedPage, *, url: str, revision: int) -> Change:
    """Return the single change that is reported if hardly any line is unchanged, or if the diff was abandoned.

    ``url`` is the link of the change. ``revision`` is the number of the page's version and part of the change's key.
    """
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
    """Return both texts, truncated. If they are long, most of their common beginning is left out."""
    if max(len(before), len(after)) <= BLOCK_CHARS:
        return before, after
    differing = (index for index, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    common = next(differing, min(len(before), len(after)))
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
