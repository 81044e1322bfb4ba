"""What is new on a page: its lines now against its lines before, without what changes by itself. Pure.

- A page is fetched twice in quick succession at first: whatever differs then is *volatile* (``volatile``),
  and a difference in volatile places only is none from then on.
- What changes 10 times in succession within 10 hours becomes volatile, too: a counter that stood still at
  first. What is volatile and was seen to stay the same for a week is news again when it changes.
- A page that alternates (A/B tests, rotating parts) is told a day's first coming and going of a line, so
  that an outage and its end are told; a difference of lines that have done both within a day is not.
- While only volatile places differ, the state stays the same for half a day: nothing has to be stored.
"""

import hashlib
import zlib
from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from service.feeds.pages.line_diff import Hunk, line_hunks
from service.feeds.pages.volatile_text import MAX_SPOTS, Spot, Spots, Version, spots_between
from service.feeds.parsing.html_text import one_line
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


LEARNING_S = 120.0
RESTLESS_TIMES = 10
RESTLESS_WITHIN_S = 10 * 3600.0
STABLE_AFTER_S = 7 * 86_400.0
ALTERNATING_S = 86_400.0
MAX_TURNED = 2_000
_REFRESHED_AFTER_S = 43_200.0
_TURNS_TOLD = 2
_PROOF_CHARS = 300
_HASH_BYTES = 6


class Turns(msgspec.Struct, frozen=True, array_like=True):
    """How many ``times`` a line has come or gone, each at most a day after the time before, and when it did last."""

    times: int
    last_s: float


class PageState(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """What is remembered of a page: its lines, compressed, and how they behave; at most 1.2 MB.

    ``revision`` counts the changes found so far. Until ``learning_until_s`` the second look is awaited, and
    0 afterwards. ``volatile`` places are not told; ``restless`` ones changed at every recent look;
    ``turned`` are hashes of lines that came or went within a day, those that did last at the end. ``seen_s``
    is the time of the last look, known to half a day: what happened since is unknown, not nothing.
    """

    lines: bytes
    learning_until_s: float = 0.0
    revision: int = 0
    volatile: dict[bytes, Spot] = {}
    restless: dict[bytes, Spot] = {}
    turned: dict[bytes, Turns] = {}
    seen_s: float = 0.0


class PageDecision(msgspec.Struct, frozen=True):
    """``changes``: what to tell subscribers, in the page's order. ``latest``: the page itself, as proof."""

    state: PageState
    changes: tuple[Change, ...]
    latest: tuple[Entry, ...]


def detect_page_changes(state: PageState | None, page: ParsedPage, *, url: str, now_s: float) -> PageDecision:
    """Return what has changed on ``page``, the present content of the channel ``url``, and what to remember.

    ``state`` is None at the first look, which tells nothing; nor does the second, within two minutes.
    """
    if state is None:
        return PageDecision(PageState(_packed(page.lines), now_s + LEARNING_S, seen_s=now_s), (), _proof(page, url))
    old = Version(_unpacked(state.lines))
    if now_s <= state.learning_until_s:
        return PageDecision(_learned(old, Version(page.lines), now_s), (), _proof(page, url))
    state, changes = _looked(state, old, page, url, now_s)
    return PageDecision(state, changes, _proof(page, url))


def _learned(old: Version, new: Version, now_s: float) -> PageState:
    hunks = line_hunks(old.ageless, new.ageless) or ()
    return PageState(_packed(new.lines), volatile=spots_between(old, new, hunks, now_s=now_s), seen_s=now_s)


def _looked(
    state: PageState, old: Version, page: ParsedPage, url: str, now_s: float
) -> tuple[PageState, tuple[Change, ...]]:
    new = Version(page.lines)
    spots = {key: spot for key, spot in state.volatile.items() if state.seen_s - spot.changed_s <= STABLE_AFTER_S}
    old_settled, new_settled = old.settled(spots), new.settled(spots)
    every_hunk = line_hunks(old_settled, new_settled)
    revision = state.revision + 1
    if every_hunk is None:
        after = msgspec.structs.replace(
            state, lines=_packed(page.lines), learning_until_s=0.0, revision=revision, restless={}, seen_s=now_s
        )
        return after, (rewritten(old.lines, page, url=url, revision=revision),)
    volatile = _refreshed(spots, _stirred(spots, old, new, every_hunk), now_s)
    hunks = [hunk for hunk in every_hunk if not _is_volatile(spots, new, hunk)]
    if not hunks:
        return _after_no_change(state, page.lines, volatile, now_s), ()
    told = [hunk for hunk in hunks if not _alternates(state.turned, _sides(old_settled, new_settled, hunk), now_s)]
    restless, risen = _restless(state.restless, spots_between(old, new, told, now_s=now_s), now_s)
    after = PageState(
        lines=_packed(page.lines),
        revision=revision,
        volatile=_with_risen(volatile, risen),
        restless=restless,
        turned=_turned(state.turned, old_settled, new_settled, hunks, now_s),
        seen_s=now_s,
    )
    return after, changes_between(old.lines, page, told, url=url, revision=revision)


def _is_volatile(spots: Spots, new: Version, hunk: Hunk) -> bool:
    spot = spots.get(new.lines_key(hunk.new_start, hunk.new_end))
    return spot is not None and spot.lines >= max(hunk.old_end - hunk.old_start, hunk.new_end - hunk.new_start)


def _stirred(spots: Spots, old: Version, new: Version, hunks: Sequence[Hunk]) -> set[bytes]:
    """Return the spots that differ between the two versions."""
    before, after = old.words_at(spots), new.words_at(spots)
    words = {key for key, line in after.items() if line != before.get(key, line)}
    return words | {new.lines_key(hunk.new_start, hunk.new_end) for hunk in hunks}


def _after_no_change(state: PageState, new: Sequence[str], volatile: dict[bytes, Spot], now_s: float) -> PageState:
    is_recent = now_s - state.seen_s <= _REFRESHED_AFTER_S
    if is_recent and volatile == state.volatile and not state.restless and not state.learning_until_s:
        return state
    return msgspec.structs.replace(
        state, lines=_packed(new), learning_until_s=0.0, volatile=volatile, restless={}, seen_s=now_s
    )


def _refreshed(spots: Spots, stirred: set[bytes], now_s: float) -> dict[bytes, Spot]:
    """Return the spots with the time of their last change, which is known to half a day."""
    return {
        key: msgspec.structs.replace(spot, changed_s=now_s)
        if key in stirred and now_s - spot.changed_s > _REFRESHED_AFTER_S
        else spot
        for key, spot in spots.items()
    }


def _restless(before: Spots, changed: Spots, now_s: float) -> tuple[dict[bytes, Spot], dict[bytes, Spot]]:
    """Return the places that changed at every recent look, and those that did so often enough to be volatile."""
    found: dict[bytes, Spot] = {}
    for key, spot in changed.items():
        last = before.get(key)
        found[key] = spot if last is None or now_s - last.since_s > RESTLESS_WITHIN_S else _merged(last, spot)
    risen = {key: spot for key, spot in found.items() if spot.times >= RESTLESS_TIMES}
    return {key: spot for key, spot in found.items() if key not in risen}, risen


def _with_risen(volatile: Spots, risen: Spots) -> dict[bytes, Spot]:
    merged = {
        **volatile,
        **{key: _merged(volatile[key], spot) if key in volatile else spot for key, spot in risen.items()},
    }
    return dict(list(merged.items())[-MAX_SPOTS:])


def _merged(earlier: Spot, later: Spot) -> Spot:
    words = tuple(sorted({*earlier.words, *later.words}))
    lines = max(earlier.lines, later.lines)
    return Spot(words, lines, earlier.times + later.times, earlier.since_s, later.changed_s)


def _sides(old: Sequence[str], new: Sequence[str], hunk: Hunk) -> set[bytes]:
    lines = (*old[hunk.old_start : hunk.old_end], *new[hunk.new_start : hunk.new_end])
    return {hashlib.blake2b(line.encode(), digest_size=_HASH_BYTES).digest() for line in lines}


def _alternates(turned: dict[bytes, Turns], lines: set[bytes], now_s: float) -> bool:
    known = [turned.get(line) for line in lines]
    return all(turns and turns.times >= _TURNS_TOLD and now_s - turns.last_s <= ALTERNATING_S for turns in known)


def _turned(
    before: dict[bytes, Turns], old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk], now_s: float
) -> dict[bytes, Turns]:
    recent = {line: turns for line, turns in before.items() if now_s - turns.last_s <= ALTERNATING_S}
    for line in sorted(set().union(*(_sides(old, new, hunk) for hunk in hunks))):
        last = recent.pop(line, None)
        recent[line] = Turns(last.times + 1 if last else 1, now_s)
    return dict(list(recent.items())[-MAX_TURNED:])


def _proof(page: ParsedPage, url: str) -> tuple[Entry, ...]:
    text = one_line(" ".join(page.lines[:_PROOF_CHARS]), _PROOF_CHARS)
    key = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return (Entry(key, title=page.title, link=url, summary=text),)


def _packed(lines: Sequence[str]) -> bytes:
    return zlib.compress("\n".join(lines).encode())


def _unpacked(packed: bytes) -> list[str]:
    text = zlib.decompress(packed).decode()
    return text.split("\n") if text else []
