"""Messages about problems of the fleet."""

from typing import Any

import pytest

from service.console.queries.fleet_problems import list_problems


def _messages(**change: Any) -> tuple[str, ...]:
    """Return the attention messages of a healthy fleet with these changes."""
    healthy = {"nodes": 2, "outbox_users": 0, "polls_per_minute": {"unchanged": 9.0}, "overdue": 0}
    return list_problems(**{**healthy, **change}, example="A feed")


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
        ({"overdue": 1}, "1 channel has not been polled for"),
        ({"overdue": 1200}, "1,200 channels have not been polled for"),
    ],
)
def test_each_problem_has_a_message_with_an_action(changes: dict[str, Any], text: str) -> None:
    (message,) = _messages(**changes)
    assert message.startswith(text)
    assert message.count(".") == 2
