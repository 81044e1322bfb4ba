"""Rates, delays and loads computed from the counters of processes, across restarts."""

from hypothesis import given
from hypothesis import strategies as st

from service.console.queries.metrics_scraper import Sample, thin_out
from service.console.queries.metrics_statistics import (
    DETECTION,
    MESSAGES,
    Delays,
    Load,
    compute_delays,
    compute_growth,
    compute_load,
    count_polls,
    parse_metrics,
)

SERVED = """\
# HELP coronet_polls_total Polls
coronet_polls_total{outcome="new"} 3.0
coronet_polls_total{outcome="tls-failed"} 1.0
coronet_messages_total 7.0
coronet_messages_total nonsense
python_info{version="3"} 1.0
"""


def test_only_metrics_of_coronet_are_parsed() -> None:
    counts = parse_metrics(SERVED)
    assert count_polls(counts) == {"new": 3.0, "tls-failed": 1.0}
    assert counts[MESSAGES] == 7.0
    assert len(counts) == 3


@given(st.text())
def test_any_text_can_be_parsed(text: str) -> None:
    assert all(name.startswith(("coronet_", "process_")) for name in parse_metrics(f"coronet_{text}"))


def test_load_has_rates_of_the_period_and_current_sizes() -> None:
    before = parse_metrics(SERVED + "process_cpu_seconds_total 5.0\ncoronet_content_cache_entries 9.0\n")
    now = parse_metrics(
        """\
coronet_polls_total{outcome="new"} 5.0
coronet_polls_total{outcome="tls-failed"} 2.0
process_cpu_seconds_total 35.0
process_resident_memory_bytes 1e+08
coronet_content_cache_entries 7.0
coronet_content_cache_bytes 2048.0
coronet_contents_total{source="cache"} 3.0
coronet_contents_total{source="owner"} 1.0
coronet_poll_lag_seconds_bucket{le="1.0"} 3.0
coronet_poll_lag_seconds_bucket{le="+Inf"} 3.0
coronet_versions_info{coronet="0.1.0",python="3.11.4"} 1.0
"""
    )
    assert compute_load(before, now, 60.0) == Load(
        polls_per_minute=3.0,
        core_share=0.5,
        memory_bytes=1e8,
        poll_lag=compute_delays(now, "coronet_poll_lag_seconds"),
        cache_entries=7,
        cache_bytes=2048.0,
        cache_hit_share=0.75,
        versions={"coronet": "0.1.0", "python": "3.11.4"},
    )
    assert compute_load({}, {}, 60.0) == Load(0.0, 0.0, 0.0, None, 0, 0.0, None, {})


def test_a_restarted_process_counts_from_zero() -> None:
    assert compute_growth({"a": 10.0, "b": 1.0}, {"a": 4.0, "b": 3.0, "c": 2.0}) == {"a": 4.0, "b": 2.0, "c": 2.0}


def _buckets(**counts: float) -> dict[str, float]:
    return {
        f'{DETECTION}_bucket{{le="{bound.replace("_", ".").lstrip("b")}"}}': count for bound, count in counts.items()
    }


def test_delays_are_interpolated_within_buckets() -> None:
    found = compute_delays(_buckets(b1_0=50, b10_0=100) | {f'{DETECTION}_bucket{{le="+Inf"}}': 100}, DETECTION)
    assert found == Delays(100, 1.0, 9.1, 9.82)


def test_delays_beyond_all_buckets_are_the_last_bound() -> None:
    found = compute_delays(_buckets(b1_0=0) | {f'{DETECTION}_bucket{{le="+Inf"}}': 4}, DETECTION)
    assert found == Delays(4, 1.0, 1.0, 1.0)


def test_an_empty_histogram_has_no_delays() -> None:
    assert compute_delays({}, DETECTION) is None
    assert compute_delays(_buckets(b1_0=0) | {f'{DETECTION}_bucket{{le="+Inf"}}': 0}, DETECTION) is None


@given(st.lists(st.floats(0, 5_000), max_size=200))
def test_old_samples_are_thinned_out_and_the_oldest_dropped(times_s: list[float]) -> None:
    now_s = 5_000.0
    samples = [Sample(at_s, {}, 0) for at_s in sorted(times_s)]
    kept = thin_out(samples, now_s)
    assert [each for each in samples if now_s - each.at_s <= 300.0] == [
        each for each in kept if now_s - each.at_s <= 300
    ]
    assert all(now_s - each.at_s <= 3_600.0 for each in kept)
    assert len(kept) <= 3_300 / 30 + 1 + sum(now_s - each.at_s <= 300.0 for each in samples)
    assert thin_out(kept, now_s) == kept
