"""Estimates of a channel's update interval are correct for any publisher and any polling rate."""

from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.corona.update_rates import (
    DEFAULT_UPDATE_INTERVAL_S,
    LONGEST_UPDATE_INTERVAL_S,
    MEMORY_UPDATES,
    SHORTEST_UPDATE_INTERVAL_S,
    SILENCE_FACTOR,
    UpdateEstimate,
    estimate_after_poll,
    initial_estimate,
)

intervals_s = st.floats(60, 14 * 86_400)
updates_per_poll = st.one_of(st.floats(0.02, 1), st.floats(1, 40))
polls = st.lists(st.tuples(st.integers(0, 1000), st.floats(-1e3, 1e8)), max_size=60)


def _after(estimate: UpdateEstimate, found: list[int], elapsed_s: float) -> UpdateEstimate:
    for new_entries in found:
        estimate = estimate_after_poll(estimate, new_entries, elapsed_s)
    return estimate


def _polls(per_poll: float) -> int:
    return round(max(15 * MEMORY_UPDATES / per_poll, 40))


@given(intervals_s, updates_per_poll, st.floats(0, 1))
def test_the_estimate_converges_for_a_regular_publisher(interval_s: float, per_poll: float, phase: float) -> None:
    counts = np.diff(np.floor(phase + per_poll * np.arange(_polls(per_poll) + 1))).astype(int)
    found = _after(UpdateEstimate(), counts.tolist(), interval_s * per_poll)
    assert found.interval_s == pytest.approx(interval_s, rel=0.15)


@settings(max_examples=25)
@given(intervals_s, updates_per_poll, st.integers(0, 1000))
def test_the_estimate_converges_for_a_random_publisher(interval_s: float, per_poll: float, seed: int) -> None:
    """The median of many estimates is tested: a single one is based on so few updates that it may be off."""
    random = np.random.default_rng(seed)
    found = [
        _after(UpdateEstimate(), random.poisson(per_poll, _polls(per_poll)).tolist(), interval_s * per_poll)
        for _ in range(9)
    ]
    assert median(estimate.interval_s for estimate in found) == pytest.approx(interval_s, rel=0.35)


@given(intervals_s, updates_per_poll, st.integers(5, 2000))
def test_long_silence_raises_the_estimate_and_updates_lower_it_again(
    interval_s: float, per_poll: float, silent: int
) -> None:
    elapsed_s = interval_s * per_poll
    usual = _after(
        initial_estimate(interval_s), np.diff(np.floor(per_poll * np.arange(400))).astype(int).tolist(), elapsed_s
    )
    polls_without = max(1, round(silent / per_poll))
    silence = _after(usual, [0] * polls_without, elapsed_s)
    assert silence.interval_s >= min(polls_without * elapsed_s / SILENCE_FACTOR, LONGEST_UPDATE_INTERVAL_S) * (1 - 1e-9)
    assert silence.interval_s >= usual.interval_s
    counts = np.diff(np.floor(per_poll * np.arange(round(4 * MEMORY_UPDATES / per_poll) + 2))).astype(int).tolist()
    assert _after(silence, counts, elapsed_s).interval_s <= max(1.5 * interval_s, silence.interval_s / 10)


@given(polls, intervals_s)
def test_the_estimate_stays_within_its_bounds(found: list[tuple[int, float]], interval_s: float) -> None:
    estimate = initial_estimate(interval_s)
    for new_entries, elapsed_s in found:
        estimate = estimate_after_poll(estimate, new_entries, elapsed_s)
        assert SHORTEST_UPDATE_INTERVAL_S <= estimate.interval_s <= LONGEST_UPDATE_INTERVAL_S


@given(st.lists(st.integers(0, 3), max_size=30), st.floats(60, 1e6))
def test_polls_without_updates_never_lower_the_estimate_and_instant_updates_never_raise_it(
    found: list[int], elapsed_s: float
) -> None:
    estimate = _after(UpdateEstimate(), found, elapsed_s)
    assert estimate_after_poll(estimate, 0, elapsed_s).interval_s >= estimate.interval_s * (1 - 1e-9)
    assert estimate_after_poll(estimate, 1, 0.0).interval_s <= estimate.interval_s * (1 + 1e-9)


def test_the_default_estimate_is_a_day() -> None:
    assert UpdateEstimate().interval_s == DEFAULT_UPDATE_INTERVAL_S
    assert initial_estimate(3600).interval_s == 3600
    assert initial_estimate(1e12).interval_s == LONGEST_UPDATE_INTERVAL_S
