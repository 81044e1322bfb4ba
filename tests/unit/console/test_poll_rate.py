"""Polls per minute, from the last polls of each channel."""

import pytest

from service.console.pages.overview import polls_per_minute, silence_s
from service.model import PollResult

NOW_S = 1_000.0


def _polls(outcome: str, *ages_s: float) -> list[PollResult]:
    return [PollResult("a" * 40, NOW_S - age_s, outcome) for age_s in ages_s]


def test_polls_of_the_last_minute_count_and_older_ones_do_not() -> None:
    sample = [_polls("new", 5, 20, 61), _polls("unchanged", 59), _polls("unchanged", 90)]
    assert polls_per_minute(sample, kept=20, channels=3, now_s=NOW_S) == {"new": 2.0, "unchanged": 1.0}


def test_a_sample_stands_for_all_channels() -> None:
    sample = [_polls("new", 5), _polls("new", 65)]
    assert polls_per_minute(sample, kept=20, channels=200, now_s=NOW_S) == {"new": 100.0}


def test_a_channel_polled_more_often_than_is_kept_counts_over_what_is_kept() -> None:
    sample = [_polls("unchanged", 2, 4, 6, 8, 10)]
    assert polls_per_minute(sample, kept=5, channels=1, now_s=NOW_S) == pytest.approx({"unchanged": 30.0})


def test_without_channels_there_are_no_polls() -> None:
    assert polls_per_minute([], kept=20, channels=0, now_s=NOW_S) == {}


def test_silence_is_the_age_of_the_newest_poll() -> None:
    assert silence_s([_polls("new", 30, 70), [], _polls("new", 40)], NOW_S) == 30.0
    assert silence_s([[], []], NOW_S) == 0.0
