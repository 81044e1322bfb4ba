"""The polling audit: compares the publishers' journal of requests with the plans that the console's API shows."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from service.overlay.ring import from_hex, shared_digits
from tests.support.public_publisher import Request

Details = Mapping[str, Mapping[str, Any]]
"""The response of the console's API about each channel, by URL."""

SKIPPED, DOUBLED = 1.5, 0.5
"""Ratios of an actual to a planned gap between polls from which on a poll was skipped, or was made twice."""


class Phase(NamedTuple):
    """A span of time (Unix s) in which the policy did not change, and each channel's planned gap between polls, by URL.

    The policy was changed at ``begin_s``; from ``settled_s`` on, the plans stayed the same.
    """

    begin_s: float
    settled_s: float
    end_s: float
    gaps_s: Mapping[str, float]


class IrregularGap(NamedTuple):
    """Two successive polls of a channel, ``gap_s`` apart, when the plans had gaps from ``shortest_s`` to ``longest_s``.

    The first of the two polls was at ``at_s`` (Unix s).
    """

    url: str
    at_s: float
    gap_s: float
    shortest_s: float
    longest_s: float


def planned_gap_s(detail: Mapping[str, Any]) -> float:
    """Return the planned time between two polls of a channel; NaN if it is not planned yet.

    ``detail`` is the response of the console's API about the channel.
    """
    why = detail["why"]
    return why["interval_s"] / len(why["turns"]) if why and why["turns"] else math.nan


def planned_gaps_s(details: Details) -> dict[str, float]:
    """Return :func:`planned_gap_s` of each channel, by URL."""
    return {url: planned_gap_s(detail) for url, detail in details.items()}


def polls_by_url(requests: Iterable[Request]) -> dict[str, list[Request]]:
    """Return the requests of each channel, in order."""
    found = defaultdict[str, list[Request]](list)
    for request in requests:
        found[request.url].append(request)
    return found


def irregular_gaps(
    polls: Mapping[str, Sequence[Request]],
    phases: Sequence[Phase],
    urls: Iterable[str],
    *,
    skipped_from: float = SKIPPED,
    doubled_to: float = DOUBLED,
) -> tuple[list[IrregularGap], list[IrregularGap]]:
    """Return the gaps that are too long (a poll was skipped), and those that are too short (a poll was made twice).

    A gap that overlaps several phases may be as short as the shortest planned gap of these, and as long as the longest.
    A gap is irregular from ``skipped_from`` times the longest, and up to ``doubled_to`` times the shortest.
    """
    skipped, doubled = [], []
    begin_s, end_s = phases[0].settled_s, phases[-1].end_s
    untils_s = [*(phase.settled_s for phase in phases[1:]), math.inf]
    for url in urls:
        times_s = [begin_s, *(poll.at_s for poll in polls.get(url, ()) if begin_s <= poll.at_s <= end_s), end_s]
        for number, (before_s, after_s) in enumerate(pairwise(times_s)):
            planned_s = [
                phase.gaps_s[url]
                for phase, until_s in zip(phases, untils_s, strict=True)
                if phase.begin_s <= after_s and before_s <= until_s
            ]
            gap = IrregularGap(url, before_s, after_s - before_s, min(planned_s), max(planned_s))
            if gap.gap_s > skipped_from * gap.longest_s:
                skipped.append(gap)
            is_between_polls = 0 < number < len(times_s) - 2
            if gap.gap_s < doubled_to * gap.shortest_s and is_between_polls:
                doubled.append(gap)
    return skipped, doubled


def most_at_once(times_s: Iterable[float], per_s: float) -> float:
    """Return the maximum, over all spans of time, of requests in the span minus ``per_s`` times its length.

    ``times_s`` are the requests' times in ascending order. For a token bucket of this rate, the
    maximum is at most the size of the bucket.
    """
    most, level, before_s = 0.0, 0.0, -math.inf
    for at_s in times_s:
        level = max(0.0, level - (at_s - before_s) * per_s) + 1
        most, before_s = max(most, level), at_s
    return most


def wedge(ids: Iterable[str], channel_id: str, size: int) -> set[str]:
    """Return the ids of the ``size`` nodes that share more leading binary digits with a channel than all others.

    The result is empty if no wedge has that size.
    """
    digits = {node: shared_digits(from_hex(node), from_hex(channel_id), 2) for node in ids}
    for level in range(max(digits.values()) + 1):
        members = {node for node, shared in digits.items() if shared >= level}
        if len(members) == size:
            return members
    return set()
