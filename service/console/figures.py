"""The fleet's own figures, from what its processes count: rates, and how long news takes. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final

import msgspec

_READ: Final = ("coronet_", "process_cpu_seconds_total", "process_resident_memory_bytes")
_POLLS: Final = "coronet_polls_total"
_MESSAGES: Final = "coronet_messages_total"
_MOVES: Final = "coronet_key_group_moves_total"
DETECTION: Final = "coronet_detection_seconds"
DELIVERY: Final = "coronet_delivery_seconds"
RECEIPT: Final = "coronet_receipt_seconds"
_POLL_LAG: Final = "coronet_poll_lag_seconds"
_CONTENTS: Final = "coronet_contents_total{"
_VERSIONS: Final = "coronet_versions_info{"
_LABEL: Final = re.compile(r'(\w+)="([^"\\]*)"')
_MARKS: Final = (0.5, 0.95, 0.99)

Counts = Mapping[str, float]
"""What processes have counted, by name and labels as they serve it."""


class Delays(msgspec.Struct, frozen=True):
    """Half, 95 % and 99 % of so many (``count``) took no longer, in seconds."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float


class Load(msgspec.Struct, frozen=True):
    """What one process does: of the last minutes, polls, its share of one core, and how far polls are behind.

    ``cache_hit_share`` is of all contents that were needed since it began (null if none was); ``versions`` are of what
    it runs.
    """

    polls_per_minute: float
    core_share: float
    memory_bytes: float
    poll_lag: Delays | None
    cache_entries: int
    cache_bytes: float
    cache_hit_share: float | None
    versions: dict[str, str]


class Sample(msgspec.Struct, frozen=True):
    """One look at all processes: when (Unix s), what they have counted since the first one, how many people wait."""

    at_s: float
    counts: Counts
    waiting: int


def read(text: str) -> dict[str, float]:
    """Return our own counts, and what the process takes of its machine, in a text as processes serve it (Prometheus).

    Lines that are none are left out.
    """
    counts: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith(_READ):
            name, _, value = line.rpartition(" ")
            try:
                counts[name] = counts.get(name, 0.0) + float(value)
            except ValueError:
                continue
    return counts


def growth(before: Counts, after: Counts) -> dict[str, float]:
    """Return by how much counts grew; those of a process that has begun anew count from nothing."""
    grown: dict[str, float] = {}
    for name, value in after.items():
        past = before.get(name, 0.0)
        grown[name] = value - past if value >= past else value
    return grown


def added(total: Counts, grown: Counts) -> dict[str, float]:
    """Return the sums of both."""
    return {name: total.get(name, 0.0) + grown.get(name, 0.0) for name in {*total, *grown}}


def polls(grown: Counts) -> dict[str, float]:
    """Return how many polls there were, by outcome."""
    start = f'{_POLLS}{{outcome="'
    return {name[len(start) : -2]: value for name, value in grown.items() if name.startswith(start) and value > 0}


def messages(grown: Counts) -> float:
    """Return how many messages the XMPP server took."""
    return grown.get(_MESSAGES, 0.0)


def moves(grown: Counts) -> dict[str, int]:
    """Return how many key groups were split, and merged, by kind."""
    start = f'{_MOVES}{{kind="'
    return {name[len(start) : -2]: int(value) for name, value in grown.items() if name.startswith(start) and value > 0}


def delays(grown: Counts, histogram: str) -> Delays | None:
    """Return how long things took, as buckets tell; None if there were none. Within a bucket all are equally likely."""
    start = f'{histogram}_bucket{{le="'
    found = {name[len(start) : -2]: value for name, value in grown.items() if name.startswith(start)}
    buckets = sorted((inf if bound == "+Inf" else float(bound), count) for bound, count in found.items())
    count = buckets[-1][1] if buckets else 0.0
    if count < 1:
        return None
    p50_s, p95_s, p99_s = (_quantile(buckets, share * count) for share in _MARKS)
    return Delays(int(count), p50_s, p95_s, p99_s)


def load(before: Counts, now: Counts, spent_s: float) -> Load:
    """Return what a process does, by what it had counted ``spent_s`` ago and has now."""
    grown = growth(before, now)
    needed = {name: value for name, value in now.items() if name.startswith(_CONTENTS)}
    versions = next((name for name in now if name.startswith(_VERSIONS)), "")
    return Load(
        polls_per_minute=sum(polls(grown).values()) / spent_s * 60,
        core_share=grown.get("process_cpu_seconds_total", 0.0) / spent_s,
        memory_bytes=now.get("process_resident_memory_bytes", 0.0),
        poll_lag=delays(grown, _POLL_LAG),
        cache_entries=int(now.get("coronet_content_cache_entries", 0)),
        cache_bytes=now.get("coronet_content_cache_bytes", 0.0),
        cache_hit_share=needed.get(f'{_CONTENTS}source="cache"}}', 0.0) / sum(needed.values()) if needed else None,
        versions=dict(_LABEL.findall(versions)),
    )


def _quantile(buckets: Sequence[tuple[float, float]], wanted: float) -> float:
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted:
            return low if bound == inf else low + (bound - low) * (wanted - below) / max(count - below, 1e-9)
        low, below = bound, count
    return low


def thinned(samples: Iterable[Sample], now_s: float, fine_s: float, coarse_s: float, kept_s: float) -> list[Sample]:
    """Return what to keep of samples, oldest first: all of the last ``fine_s``, before that one each ``coarse_s``."""
    kept: list[Sample] = []
    for sample in samples:
        old = now_s - sample.at_s > fine_s
        if now_s - sample.at_s > kept_s or (old and kept and sample.at_s - kept[-1].at_s < coarse_s):
            continue
        kept.append(sample)
    return kept
