"""Where two versions of a text differ, line by line, in bounded work. Pure.

The shortest edit script of E. Myers (An O(ND) Difference Algorithm and Its Variations, 1986), run on what
is left after the common beginning and end and after the lines that only one version has: those differ
in any case. A total rewrite therefore costs only linear work, and what may cost more is lines that moved;
for those the work is counted, and given up at a bound.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_STEPS = 1_000_000


class Hunk(NamedTuple):
    """Lines ``old_start:old_end`` of the old version gave way to ``new_start:new_end`` of the new one (from 0)."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def line_hunks(old: Sequence[str], new: Sequence[str], *, max_steps: int = MAX_STEPS) -> list[Hunk] | None:
    """Return the differences in order, with at least one common line between any two.

    None if finding them takes more than ``max_steps`` comparisons (under 1 µs each) after linear work.
    """
    start = _common_length(old, new)
    tail = _common_length(old[start:][::-1], new[start:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    shared = set(old[start:old_end]) & set(new[start:new_end])
    old_places = [place for place in range(start, old_end) if old[place] in shared]
    new_places = [place for place in range(start, new_end) if new[place] in shared]
    pairs = _common_subsequence([old[place] for place in old_places], [new[place] for place in new_places], max_steps)
    if pairs is None:
        return None
    common = [(old_places[at_old], new_places[at_new]) for at_old, at_new in pairs]
    return list(_gaps(common, start, (old_end, new_end)))


def _common_length(some: Sequence[str], others: Sequence[str]) -> int:
    both = enumerate(zip(some, others, strict=False))
    return next((place for place, (one, other) in both if one != other), min(len(some), len(others)))


def _gaps(common: Sequence[tuple[int, int]], start: int, end: tuple[int, int]) -> Iterator[Hunk]:
    old_start = new_start = start
    for at_old, at_new in (*common, end):
        if (old_start, new_start) != (at_old, at_new):
            yield Hunk(old_start, at_old, new_start, at_new)
        old_start, new_start = at_old + 1, at_new + 1


def _common_subsequence(old: Sequence[str], new: Sequence[str], max_steps: int) -> list[tuple[int, int]] | None:
    """Return the places of a longest common subsequence; None if that takes more than ``max_steps``."""
    rounds = _rounds(old, new, max_steps)
    return None if rounds is None else _traced_back(rounds, len(old), len(new))


def _rounds(old: Sequence[str], new: Sequence[str], max_steps: int) -> list["array[int]"] | None:
    """Return for each number of edits, up to the smallest that suffices, how far they reach (Myers' figure 2).

    With ``edits`` edits, element i is how many old lines are consumed at most on diagonal 2i - ``edits``
    (the difference between consumed old and new lines).
    """
    rounds: list[array[int]] = []
    steps = 0
    for edits in range(len(old) + len(new) + 1):
        reached = array("q")
        for place in range(edits + 1):
            began = at_old = _after_edit(rounds, edits, place)
            at_new = at_old - (2 * place - edits)
            while at_old < len(old) and at_new < len(new) and old[at_old] == new[at_new]:
                at_old, at_new = at_old + 1, at_new + 1
            reached.append(at_old)
            if at_old >= len(old) and at_new >= len(new):
                return [*rounds, reached]
            steps += 1 + at_old - began
            if steps > max_steps:
                return None
        rounds.append(reached)
    raise AssertionError("Deleting all old lines and inserting all new ones always suffices.")


def _after_edit(rounds: Sequence["array[int]"], edits: int, place: int) -> int:
    """Return how many old lines are consumed right after the last of ``edits`` edits that leads to ``place``."""
    if edits == 0:
        return 0
    before = rounds[edits - 1]
    return before[place] if _is_insertion(before, place) else before[place - 1] + 1


def _is_insertion(before: "array[int]", place: int) -> bool:
    return place == 0 or (place < len(before) and before[place - 1] < before[place])


def _traced_back(rounds: Sequence["array[int]"], at_old: int, at_new: int) -> list[tuple[int, int]]:
    common: list[tuple[int, int]] = []
    for edits in range(len(rounds) - 1, -1, -1):
        place = (at_old - at_new + edits) // 2
        began = _after_edit(rounds, edits, place)
        matched = at_old - began
        common += [(at_old - back, at_new - back) for back in range(1, matched + 1)]
        at_old, at_new = began, at_new - matched
        if edits and _is_insertion(rounds[edits - 1], place):
            at_new -= 1
        else:
            at_old -= 1
    return common[::-1]
