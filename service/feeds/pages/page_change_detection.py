"""Detection of changes to a page: a line diff that ignores the parts that change by themselves.

A *region* is a part of a page: some words of a line, or some whole lines. A *volatile* region changes by itself, as a
clock or an advertisement does (see ``volatile_text``). Differences in volatile regions are not reported.

- A page is first fetched twice in quick succession. The regions that differ become volatile.
- A region that changes in 10 successive versions of the page within 10 hours also becomes volatile.
- A volatile region that stays the same for a week stops being volatile.
- Some pages alternate between two versions of their content. Therefore only the first appearance and the first
  disappearance of a line within a day are reported.
- While only volatile regions change, the state is updated only every half day, so that it need not be stored after each
  poll.
"""

import hashlib
import zlib
from collections.abc import Sequence

import msgspec

from service.feeds.pages.page_diff import Hunk, describe_changes, diff_lines
from service.feeds.pages.volatile_text import (
    MAX_REGIONS,
    PageVersion,
    VolatileRegion,
    VolatileRegions,
    changed_regions,
)
from service.feeds.parsing.html_text import one_line
from service.model import Change, Entry, ParsedPage

LEARNING_S = 120.0
"""Time in seconds after the first fetch of a page. A second fetch within this time serves to find volatile regions."""
VOLATILE_AFTER_CHANGES = 10
VOLATILE_WITHIN_S = 10 * 3600.0
STABLE_AFTER_S = 7 * 86_400.0
ALTERNATING_S = 86_400.0
MAX_TOGGLED_LINES = 2_000
_TIME_RESOLUTION_S = 43_200.0
_REPORTED_TOGGLES = 2
_PREVIEW_CHARS = 300
_HASH_BYTES = 6


class LineToggles(msgspec.Struct, frozen=True, array_like=True):
    """How often a line of a page has recently appeared or disappeared.

    - ``times`` is the number of appearances and disappearances. The count starts again after a day without any.
    - ``last_s`` is the Unix time of the last appearance or disappearance.
    """

    times: int
    last_s: float


class PageState(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """The data that is stored with a channel to detect changes to its page; at most 1.2 MB.

    A region is a part of the page: some words of a line, or some whole lines. A region's key is a hash by which the
    region is recognised in each version of the page (see ``volatile_text``).

    - ``lines`` are the page's lines, compressed.
    - ``learning_until_s`` is set at the first poll, to a Unix time. If the second poll is made by this time, the
      regions that differ are not reported but added to ``volatile``. From the second poll on, the value is 0.
    - ``revision`` is the number of polls that have found changes.
    - ``volatile`` contains, by key, the regions that change by themselves. Changes to these are not reported.
    - ``recurring`` contains, by key, the regions that have changed at every recent poll and may become volatile.
    - ``toggled`` maps the hash of a line to how often the line has recently appeared or disappeared. Lines are
      ordered by the time of their last appearance or disappearance.
    - ``seen_s`` is the Unix time of the last poll. While the page does not change, it is updated only every half day.
    """

    lines: bytes
    learning_until_s: float = 0.0
    revision: int = 0
    volatile: dict[bytes, VolatileRegion] = {}
    recurring: dict[bytes, VolatileRegion] = {}
    toggled: dict[bytes, LineToggles] = {}
    seen_s: float = 0.0


class PageChanges(msgspec.Struct, frozen=True):
    """The changes to a page that are to be reported, in page order, and the state to store with the channel.

    ``latest`` is a single entry that describes the current page: its title and the beginning of its text.
    """

    state: PageState
    changes: tuple[Change, ...]
    latest: tuple[Entry, ...]


def detect_page_changes(
    state: PageState | None, page: ParsedPage, *, url: str, now_s: float, is_selected: bool = False
) -> PageChanges:
    """Compare ``page``, the current content of the page ``url``, with ``state``; return the changes and the new state.

    - ``state`` is the state that the previous call returned; None at the first poll.
    - ``now_s`` is the current Unix time.
    - ``is_selected`` states whether ``page`` is only what a selector matches. If this is a single line, such as a
      price, nothing in it becomes volatile: otherwise no change would ever be reported.

    No changes are reported at the first poll, nor at a second poll within two minutes of the first.
    """
    if state is None:
        return PageChanges(PageState(_compress(page.lines), now_s + LEARNING_S, seen_s=now_s), (), _preview(page, url))
    old = PageVersion(_decompress(state.lines))
    changes: tuple[Change, ...] = ()
    if now_s <= state.learning_until_s:
        state = _learn_volatile_regions(old, PageVersion(page.lines), now_s)
    else:
        state, changes = _compare(state, old, page, url, now_s)
    if is_selected and len(page.lines) == 1 and (state.volatile or state.recurring):
        state = msgspec.structs.replace(state, volatile={}, recurring={})
    return PageChanges(state, changes, _preview(page, url))


def _learn_volatile_regions(old: PageVersion, new: PageVersion, now_s: float) -> PageState:
    hunks = diff_lines(old.lines_without_ages, new.lines_without_ages)
    return PageState(_compress(new.lines), volatile=changed_regions(old, new, hunks, now_s=now_s), seen_s=now_s)


def _compare(
    state: PageState, old: PageVersion, page: ParsedPage, url: str, now_s: float
) -> tuple[PageState, tuple[Change, ...]]:
    new = PageVersion(page.lines)
    regions = {
        key: region for key, region in state.volatile.items() if state.seen_s - region.changed_s <= STABLE_AFTER_S
    }
    old_stable, new_stable = old.stable_lines(regions), new.stable_lines(regions)
    all_hunks = diff_lines(old_stable, new_stable)
    volatile = _with_change_times(regions, _changed_keys(regions, old, new, all_hunks), now_s)
    hunks = [hunk for hunk in all_hunks if not _is_volatile(regions, new, hunk)]
    if not hunks:
        return _state_without_change(state, page.lines, volatile, now_s), ()
    reported = [
        hunk for hunk in hunks if not _alternates(state.toggled, _line_hashes(old_stable, new_stable, hunk), now_s)
    ]
    revision = state.revision + 1
    recurring = _count_changes(state.recurring, changed_regions(old, new, reported, now_s=now_s), now_s)
    for key in [key for key, region in recurring.items() if region.times >= VOLATILE_AFTER_CHANGES]:
        region = recurring.pop(key)
        volatile[key] = _merge(volatile[key], region) if key in volatile else region
    after = PageState(
        lines=_compress(page.lines),
        revision=revision,
        volatile=dict(list(volatile.items())[-MAX_REGIONS:]),
        recurring=recurring,
        toggled=_count_toggles(state.toggled, old_stable, new_stable, hunks, now_s),
        seen_s=now_s,
    )
    return after, describe_changes(old.lines, page, reported, url=url, revision=revision)


def _is_volatile(regions: VolatileRegions, new: PageVersion, hunk: Hunk) -> bool:
    region = regions.get(new.lines_key(hunk.new_start, hunk.new_end))
    return region is not None and region.lines >= max(hunk.old_end - hunk.old_start, hunk.new_end - hunk.new_start)


def _changed_keys(regions: VolatileRegions, old: PageVersion, new: PageVersion, hunks: Sequence[Hunk]) -> set[bytes]:
    """Return the keys of the regions that differ between the versions ``old`` and ``new`` of a page.

    A region is a part of the page: some words of a line, or some whole lines.

    - ``regions`` are the regions of words to compare.
    - ``hunks`` are the differences between the lines of the two versions. Each of them counts as a changed region of
      whole lines.
    """
    before, after = old.lines_with_regions(regions), new.lines_with_regions(regions)
    words = {key for key, line in after.items() if line != before.get(key, line)}
    return words | {new.lines_key(hunk.new_start, hunk.new_end) for hunk in hunks}


def _state_without_change(
    state: PageState, new: Sequence[str], volatile: dict[bytes, VolatileRegion], now_s: float
) -> PageState:
    is_recent = now_s - state.seen_s <= _TIME_RESOLUTION_S
    if is_recent and volatile == state.volatile and not state.recurring and not state.learning_until_s:
        return state
    return msgspec.structs.replace(
        state, lines=_compress(new), learning_until_s=0.0, volatile=volatile, recurring={}, seen_s=now_s
    )


def _with_change_times(regions: VolatileRegions, changed_keys: set[bytes], now_s: float) -> dict[bytes, VolatileRegion]:
    """Return the parts of a page in ``regions``, with the time of the last change updated for those that changed.

    - ``regions`` maps the key of each part to the part.
    - ``changed_keys`` are the keys of the parts that have changed at this poll.
    - ``now_s`` is the Unix time of this poll.

    A time is updated only if it is more than half a day old. Otherwise the page's state would have to be stored after
    each poll.
    """
    # Otherwise the state would change, and be stored, at each poll.
    return {
        key: msgspec.structs.replace(region, changed_s=now_s)
        if key in changed_keys and now_s - region.changed_s > _TIME_RESOLUTION_S
        else region
        for key, region in regions.items()
    }


def _count_changes(before: VolatileRegions, changed: VolatileRegions, now_s: float) -> dict[bytes, VolatileRegion]:
    """Return the regions in ``changed``, each with its count of successive changes updated.

    A region is a part of a page. Its count restarts at 1 if the first counted change is more than 10 hours ago.

    - ``before`` maps keys to the regions that changed at every recent poll, with their previous counts.
    - ``changed`` maps keys to the regions that changed at this poll, each with a count of 1.
    - ``now_s`` is the Unix time of this poll.
    """
    # A region whose first counted change is over 10 hours ago is counted from 1 again.
    return {
        key: _merge(before[key], region)
        if key in before and now_s - before[key].since_s <= VOLATILE_WITHIN_S
        else region
        for key, region in changed.items()
    }


def _merge(earlier: VolatileRegion, later: VolatileRegion) -> VolatileRegion:
    words = tuple(sorted({*earlier.words, *later.words}))
    lines = max(earlier.lines, later.lines)
    return VolatileRegion(words, lines, earlier.times + later.times, earlier.since_s, later.changed_s)


def _line_hashes(old: Sequence[str], new: Sequence[str], hunk: Hunk) -> set[bytes]:
    lines = (*old[hunk.old_start : hunk.old_end], *new[hunk.new_start : hunk.new_end])
    return {hashlib.blake2b(line.encode(), digest_size=_HASH_BYTES).digest() for line in lines}


def _alternates(toggled: dict[bytes, LineToggles], lines: set[bytes], now_s: float) -> bool:
    known = [toggled.get(line) for line in lines]
    return all(
        toggles and toggles.times >= _REPORTED_TOGGLES and now_s - toggles.last_s <= ALTERNATING_S for toggles in known
    )


def _count_toggles(
    before: dict[bytes, LineToggles], old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk], now_s: float
) -> dict[bytes, LineToggles]:
    recent = {line: toggles for line, toggles in before.items() if now_s - toggles.last_s <= ALTERNATING_S}
    for line in sorted(set().union(*(_line_hashes(old, new, hunk) for hunk in hunks))):
        last = recent.pop(line, None)
        recent[line] = LineToggles(last.times + 1 if last else 1, now_s)
    return dict(list(recent.items())[-MAX_TOGGLED_LINES:])


def _preview(page: ParsedPage, url: str) -> tuple[Entry, ...]:
    text = one_line(" ".join(page.lines[:_PREVIEW_CHARS]), _PREVIEW_CHARS)
    key = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return (Entry(key, title=page.title, link=url, summary=text),)


def _compress(lines: Sequence[str]) -> bytes:
    return zlib.compress("\n".join(lines).encode())


def _decompress(packed: bytes) -> list[str]:
    text = zlib.decompress(packed).decode()
    return text.split("\n") if text else []
