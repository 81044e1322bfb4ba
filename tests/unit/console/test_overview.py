"""Poll rates from recorded polls, and messages about problems."""

from typing import Any

import pytest

from service.console.resources.fleet.overview import Overview, estimate_polls_per_minute, list_problems
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


def _messages(*, unpolled: int = 0, **change: Any) -> tuple[str, ...]:
    """Return the attention messages of a healthy fleet with these changes."""
    healthy = {"nodes": 2, "channels": 5, "subscriptions": 5, "users": 1, "outbox_users": 0, "failing": 0}
    polls = {"polls_per_minute": {"unchanged": 9.0}, "budget_polls_per_minute": None, "messages_per_minute": 0.0}
    delays = dict.fromkeys(("detection", "delivery", "receipt"))
    fleet = Overview(**{**healthy, **polls, **delays, "attention": (), **change})
    return list_problems(fleet, unpolled, "A feed")


def test_a_healthy_fleet_needs_no_attention() -> None:
    assert _messages() == ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"nodes": 0}, "No worker is running"),
        ({"nodes": 1}, "Only one worker"),
        ({"outbox_users": 1200}, "1,200 people are waiting"),
        (
            {"polls_per_minute": {"unchanged": 5.0, "host-not-found": 5.0}},
            "50 % of the polls fail, mostly with “Host not",
        ),
        ({"unpolled": 1}, "1 channel has not been polled for"),
        ({"unpolled": 1200}, "1,200 channels have not been polled for"),
    ],
)
def test_each_problem_has_a_message_with_an_action(changes: dict[str, Any], text: str) -> None:
    (message,) = _messages(**changes)
    assert message.startswith(text)
    assert message.count(".") == 2
