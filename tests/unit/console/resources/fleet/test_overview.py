"""Poll rates from recorded polls."""

import pytest

from service.console.resources.fleet.overview import estimate_polls_per_minute
from service.model import PollResult

NOW_S = 1_000.0


def _polls(outcome: str, *ages_s: float) -> list[PollResult]:
    return [PollResult("a" * 40, NOW_S - age_s, outcome) for age_s in ages_s]


def test_only_polls_of_the_last_minute_count() -> None:
    sample = [_polls("new", 5, 20, 61), _polls("unchanged", 59), _polls("unchanged", 90)]
    assert estimate_polls_per_minute(sample, kept=20, channels=3, now_s=NOW_S) == {"new": 2.0, "unchanged": 1.0}


def test_a_sample_is_extrapolated_to_all_channels() -> None:
    sample = [_polls("new", 5), _polls("new", 65)]
    assert estimate_polls_per_minute(sample, kept=20, channels=200, now_s=NOW_S) == {"new": 100.0}


def test_a_channel_with_only_recent_polls_counts_over_the_time_they_cover() -> None:
    sample = [_polls("unchanged", 2, 4, 6, 8, 10)]
    assert estimate_polls_per_minute(sample, kept=5, channels=1, now_s=NOW_S) == pytest.approx({"unchanged": 30.0})


def test_without_channels_there_are_no_polls() -> None:
    assert estimate_polls_per_minute([], kept=20, channels=0, now_s=NOW_S) == {}
