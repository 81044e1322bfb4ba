"""Estimates of a channel's update interval from its versions."""

from typing import Literal

import pytest

from service.corona.update_rates import (
    UpdateEstimate,
    UpdateHistory,
    estimate_after_poll,
    estimate_from_dates,
    history_after_delta,
)
from service.model import Change, Delta, Entry, Notice

CHANNEL = "c" * 40
BEFORE = UpdateHistory(UpdateEstimate(), 1_000.0)


def _delta(*changes: Change, initial: bool = False, notice: Notice | None = None) -> Delta:
    return Delta(CHANNEL, 1, 0, 0.0, changes, initial=initial, notice=notice)


def _change(kind: Literal["addition", "omission", "replacement"] = "addition", line: int = 0) -> Change:
    return Change(kind, Entry("key", "Title"), line)


@pytest.mark.parametrize(
    ("delta", "updates"),
    [
        (_delta(_change(), _change()), 2),
        (_delta(_change("replacement")), 0),
        (_delta(_change(line=3), _change("omission", line=9)), 1),
    ],
    ids=["two entries", "an edit", "two blocks of a page"],
)
def test_new_entries_and_page_changes_count_as_updates(delta: Delta, updates: int) -> None:
    after = history_after_delta(BEFORE, delta, 1_600.0)
    assert (after.estimate, after.since_s) == (estimate_after_poll(BEFORE.estimate, updates, 600.0), 1_600.0)


def test_the_first_content_and_the_time_before_it_are_ignored() -> None:
    first = UpdateHistory(BEFORE.estimate, 1_600.0)
    assert history_after_delta(BEFORE, _delta(_change(), initial=True), 1_600.0) == first
    assert history_after_delta(UpdateHistory(), _delta(_change()), 1_600.0) == first


def test_a_notice_is_not_an_update() -> None:
    assert history_after_delta(BEFORE, _delta(notice=Notice("dead")), 1_600.0) == BEFORE


def test_silence_since_the_last_version_raises_the_interval() -> None:
    assert BEFORE.interval_s(1_000.0) == BEFORE.estimate.interval_s == UpdateHistory().interval_s(5e9)
    assert BEFORE.interval_s(1_000.0 + 30 * 86_400) > 10 * 86_400


def test_dates_of_the_first_entries_give_the_first_estimate() -> None:
    hourly = [3_600.0 * number for number in range(10)]
    assert estimate_from_dates(hourly, hourly[-1]).interval_s == pytest.approx(3_600, rel=0.01)
    assert estimate_from_dates([*hourly, 1e9], hourly[-1]) == estimate_from_dates(hourly, hourly[-1])


@pytest.mark.parametrize("dates_s", [[], [5.0], [5.0, 5.0], [5.0, 20_000.0]])
def test_dates_without_a_past_interval_give_the_default(dates_s: list[float]) -> None:
    assert estimate_from_dates(dates_s, 10_000.0) == UpdateEstimate()
