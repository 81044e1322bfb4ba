"""Polls per minute, from counters that can vanish and start again."""

import prometheus_client
import pytest

from service.console.poll_rate import PollRate, polls_by_outcome
from service.metrics import POLLS

A, B = "a" * 40, "b" * 40


def test_nothing_is_said_before_there_are_two_samples() -> None:
    rate = PollRate()
    assert rate.per_minute() == {}
    rate.add(0.0, {A: {"new": 5}})
    assert rate.per_minute() == {}


def test_the_rate_is_the_growth_of_all_nodes_over_the_time_between() -> None:
    rate = PollRate()
    rate.add(0.0, {A: {"new": 5, "unchanged": 100}, B: {"unchanged": 7}})
    rate.add(30.0, {A: {"new": 6, "unchanged": 110}, B: {"unchanged": 12}})
    assert rate.per_minute() == pytest.approx({"new": 2.0, "unchanged": 30.0})


def test_a_node_that_joins_or_starts_again_makes_no_jump() -> None:
    rate = PollRate()
    rate.add(0.0, {A: {"new": 500}})
    rate.add(30.0, {A: {"new": 0}, B: {"new": 900}})
    assert rate.per_minute() == {"new": 0.0}
    rate.add(60.0, {B: {"new": 930}})
    assert rate.per_minute() == {"new": 30.0}


def test_what_is_older_than_a_minute_counts_no_more() -> None:
    rate = PollRate()
    rate.add(0.0, {A: {"new": 0}})
    rate.add(100.0, {A: {"new": 1000}})
    rate.add(160.0, {A: {"new": 1010}})
    assert rate.per_minute() == {"new": 10.0}


def test_our_own_metrics_page_is_understood() -> None:
    POLLS.labels("tls-failed").inc(3)
    assert polls_by_outcome(prometheus_client.generate_latest().decode())["tls-failed"] == 3.0
