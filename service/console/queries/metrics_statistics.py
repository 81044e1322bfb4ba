"""Statistics derived from metrics: growth of counters, percentiles of delays, loads of nodes, and outcomes of polls."""

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

import msgspec

_PREFIXES: Final = ("coronet_", "process_cpu_seconds_total", "process_resident_memory_bytes")
_POLLS: Final = "coronet_polls_total"
_MOVES: Final = "coronet_key_group_moves_total"
MESSAGES: Final = "coronet_messages_total"
"""The metric that counts the messages that the XMPP server has accepted."""
DETECTION: Final = "coronet_detection_seconds"
DELIVERY: Final = "coronet_delivery_seconds"
RECEIPT: Final = "coronet_receipt_seconds"
_POLL_LAG: Final = "coronet_poll_lag_seconds"
_CONTENTS: Final = "coronet_contents_total{"
_VERSIONS: Final = "coronet_versions_info{"
_LABEL: Final = re.compile(r'(\w+)="([^"\\]*)"')
_QUANTILES: Final = (0.5, 0.95, 0.99)
Counts = Mapping[str, float]
"""Maps each metric's name, with labels as in the Prometheus text format, to its value."""


class Delays(msgspec.Struct, frozen=True):
    """The 50th (median), 95th and 99th percentiles of ``count`` delays, in seconds."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float


class Load(msgspec.Struct, frozen=True):
    """The load of one process over the last few minutes.

    - ``core_share`` is the used fraction of one CPU core.
    - ``poll_lag`` shows how late polls were compared with their schedule; null means that there were no polls.
    - ``cache_hit_share`` is the fraction of requested contents that were found in the process's cache, since the
      process started. The value null means that none was requested.
    - ``versions`` are the versions of Coronet, Python and the Redis client.
    """

    polls_per_minute: float
    core_share: float
    memory_bytes: float
    poll_lag: Delays | None
    cache_entries: int
    cache_bytes: float
    cache_hit_share: float | None
    versions: dict[str, str]


def parse_metrics(text: str) -> dict[str, float]:
    """Read Coronet's metrics, and the process's CPU and memory use, from a Prometheus text exposition.

    Return a mapping from each metric's name with labels to its value. Malformed lines are skipped.
    """
    counts: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith(_PREFIXES):
            name, _, value = line.rpartition(" ")
            try:
                counts[name] = counts.get(name, 0.0) + float(value)
            except ValueError:
                continue
    return counts


def compute_growth(before: Counts, after: Counts) -> dict[str, float]:
    """Map each counter to its increase from ``before`` to ``after``.

    A counter that has decreased was reset by a restart; its increase is then its new value.
    """
    increases: dict[str, float] = {}
    for name, value in after.items():
        past = before.get(name, 0.0)
        increases[name] = value - past if value >= past else value
    return increases


def count_polls(counts: Counts) -> dict[str, float]:
    """Map each poll outcome to the number of polls with this outcome; leave out outcomes that have not occurred."""
    return {outcome: value for outcome, value in _by_label(counts, _POLLS, "outcome").items() if value > 0}


def _by_label(counts: Counts, metric: str, label: str) -> dict[str, float]:
    """Return the values of one metric by the values of its label, for example the number of polls by poll outcome.

    - ``counts``: the values of all metrics.
    - ``metric``: the name of the metric. It must have only one label.
    - ``label``: the name of this label.
    """
    start = f'{metric}{{{label}="'
    return {name[len(start) : -2]: value for name, value in counts.items() if name.startswith(start)}


def count_key_group_moves(counts: Counts) -> dict[str, int]:
    """Map each kind of key group move (split or merge) to the number of such moves; leave out kinds without any."""
    return {kind: int(value) for kind, value in _by_label(counts, _MOVES, "kind").items() if value > 0}


def compute_delays(counts: Counts, histogram: str) -> Delays | None:
    """Return percentiles of the delays in a histogram, interpolated within its buckets; None if the histogram is empty.

    ``counts`` contains the values of all metrics. ``histogram`` is the histogram's name.
    """
    by_bound = _by_label(counts, f"{histogram}_bucket", "le")
    buckets = sorted((inf if bound == "+Inf" else float(bound), count) for bound, count in by_bound.items())
    count = buckets[-1][1] if buckets else 0.0
    if count < 1:
        return None
    p50_s, p95_s, p99_s = (_quantile(buckets, share * count) for share in _QUANTILES)
    return Delays(int(count), p50_s, p95_s, p99_s)


def _quantile(buckets: Sequence[tuple[float, float]], rank: float) -> float:
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            return low if bound == inf else low + (bound - low) * (rank - below) / max(count - below, 1e-9)
        low, below = bound, count
    return low


def compute_load(before: Counts, now: Counts, elapsed_s: float) -> Load:
    """Return the load of a process over the last ``elapsed_s`` seconds.

    ``before`` and ``now`` are the process's metrics at the start and at the end of this period.
    """
    increases = compute_growth(before, now)
    contents = {name: value for name, value in now.items() if name.startswith(_CONTENTS)}
    versions = next((name for name in now if name.startswith(_VERSIONS)), "")
    return Load(
        polls_per_minute=sum(count_polls(increases).values()) / elapsed_s * 60,
        core_share=increases.get("process_cpu_seconds_total", 0.0) / elapsed_s,
        memory_bytes=now.get("process_resident_memory_bytes", 0.0),
        poll_lag=compute_delays(increases, _POLL_LAG),
        cache_entries=int(now.get("coronet_content_cache_entries", 0)),
        cache_bytes=now.get("coronet_content_cache_bytes", 0.0),
        cache_hit_share=contents.get(f'{_CONTENTS}source="cache"}}', 0.0) / sum(contents.values())
        if contents
        else None,
        versions=dict(_LABEL.findall(versions)),
    )
