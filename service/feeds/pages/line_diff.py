"""A line diff of two texts in a bounded number of steps.

The diff is a shortest edit script by E. Myers' algorithm (An O(ND) Difference Algorithm and Its Variations, 1986).
Before, the common beginning and end are removed, and the lines that only one version has, which differ in any case. A
total rewrite therefore takes linear time. Only moved lines take more; the steps are counted, and the diff is abandoned
at a limit.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_STEPS = 1_000_000


class Hunk(NamedTuple):
    """A difference: the lines ``new_start:new_end`` replace the lines ``old_start:old_end`` (indexes from 0)."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def diff_lines(old: Sequence[str], new: Sequence[str], *, max_steps: int = MAX_STEPS) -> list[Hunk] | None:
    """Return the differences between two texts in order. Between two differences there is at least one common line.

    None means that the diff was abandoned: it needs more than ``max_steps`` comparisons (of under 1 µs each) after the
    part that takes linear time.
    """
    start = _common_length(old, new)
    tail = _common_length(old[start:][::-1], new[start:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    shared = set(old[start:old_end]) & set(new[start:new_end])
    old_indexes = [index for index in range(start, old_end) if old[index] in shared]
    new_indexes = [index for index in range(start, new_end) if new[index] in shared]
    pairs = _common_subsequence([old[index] for index in old_indexes], [new[index] for index in new_indexes], max_steps)
    if pairs is None:
        return None
    common = [(old_indexes[at_old], new_indexes[at_new]) for at_old, at_new in pairs]
    return list(_hunks_between(common, start, (old_end, new_end)))


def _common_length(some: Sequence[str], others: Sequence[str]) -> int:
    both = enumerate(zip(some, others, strict=False))
    return next((index for index, (one, other) in both if one != other), min(len(some), len(others)))


def _hunks_between(common: Sequence[tuple[int, int]], start: int, end: tuple[int, int]) -> Iterator[Hunk]:
    old_start = new_start = start
    for at_old, at_new in (*common, end):
        if (old_start, new_start) != (at_old, at_new):
            yield Hunk(old_start, at_old, new_start, at_new)
        old_start, new_start = at_old + 1, at_new + 1


def _common_subsequence(old: Sequence[str], new: Sequence[str], max_steps: int) -> list[tuple[int, int]] | None:
    """Return a longest common subsequence of the lines, as pairs of an index in ``old`` and an index in ``new``.

    None means that it would take more than ``max_steps`` comparisons.
    """
    paths = _furthest_paths(old, new, max_steps)
    return None if paths is None else _trace_back(paths, len(old), len(new))


def _furthest_paths(old: Sequence[str], new: Sequence[str], max_steps: int) -> list["array[int]"] | None:
    """Return how far each number of edits (deleted or inserted lines) leads in both texts (Myers 1986, figure 2).

    The result has an array for 0 edits, 1 edit, and so on, up to the smallest number of edits that is sufficient. In
    the array for ``edits`` edits, element i is the largest number of old lines that can be consumed on the diagonal 2i
    - ``edits``. A diagonal is the number of consumed old lines minus the number of consumed new lines. None means that
    more than ``max_steps`` comparisons are needed.
    """
    paths: list[array[int]] = []
    steps = 0
    for edits in range(len(old) + len(new) + 1):
        reached = array("q")
        for index in range(edits + 1):
            began = at_old = _after_edit(paths, edits, index)
            at_new = at_old - (2 * index - edits)
            while at_old < len(old) and at_new < len(new) and old[at_old] == new[at_new]:
                at_old, at_new = at_old + 1, at_new + 1
            reached.append(at_old)
            if at_old >= len(old) and at_new >= len(new):
                return [*paths, reached]
            steps += 1 + at_old - began
            if steps > max_steps:
                return None
        paths.append(reached)
    raise AssertionError("Deleting all old lines and inserting all new ones always suffices.")


def _after_edit(paths: Sequence["array[int]"], edits: int, index: int) -> int:
    """Return the number of old lines that a path has consumed directly after the last of its ``edits`` edits.

    ``paths`` and ``index`` are as in :func:`_furthest_paths`: the path ends on the diagonal 2 ``index`` - ``edits``.
    """
    if edits == 0:
        return 0
    before = paths[edits - 1]
    return before[index] if _is_insertion(before, index) else before[index - 1] + 1


def _is_insertion(before: "array[int]", index: int) -> bool:
    return index == 0 or (index < len(before) and before[index - 1] < before[index])


def _trace_back(paths: Sequence["array[int]"], at_old: int, at_new: int) -> list[tuple[int, int]]:
    common: list[tuple[int, int]] = []
    for edits in range(len(paths) - 1, -1, -1):
        index = (at_old - at_new + edits) // 2
        began = _after_edit(paths, edits, index)
        matched = at_old - began
        common += [(at_old - back, at_new - back) for back in range(1, matched + 1)]
        at_old, at_new = began, at_new - matched
        if edits and _is_insertion(paths[edits - 1], index):
            at_new -= 1
        else:
            at_old -= 1
    return common[::-1]
