"""Which changes of known entries are told as corrections: those that look like somebody's work. Pure.

Many feeds change their old entries by themselves, for ever: "3 hours ago", "12 comments", a nonce, an
advertisement. What is only numbers, punctuation or markup is no change of a text at all (``traces``); of a
title, a number is one ("3 dead" became "5 dead"). What else changes by itself is learned per channel, apart
for titles and texts, because it changes everywhere: publishers correct few entries, and seldom.

- A channel is *restless* if its last 20 entries have changed once in two of them, or more, on average; if
  most of a document's entries change at once (in both cases at least 3 do); or if more than 10 do.
- Nothing is told then, until it has not been so for 30 days; and what was before is forgotten. So the
  corrections of a publisher with a new template are told again, those of a clock never.
- An entry is corrected at most 3 times for its title, and 3 times for its text.
"""

from collections.abc import Sequence
from typing import NamedTuple

QUIET_DAYS = 30
MAX_CORRECTIONS = 3
MAX_AT_ONCE = 10
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
    changed: Sequence[bool], changes_before: Sequence[int], days: Sequence[int], *, quiet_until: int, today: int
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
        at_once > MAX_AT_ONCE
        or (at_once >= _FEWEST and 2 * at_once > len(changed))
        or (ever >= _FEWEST and 2 * sum(changes) > len(changes))
    )
