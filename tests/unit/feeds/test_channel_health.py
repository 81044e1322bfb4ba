"""Diagnosis of channels: which evidence is enough for a notice, and which is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadStatus, BrokenFeed, HostNotFound, NotAFeed, ParseKilled, TlsFailed
from service.feeds.channel_health import (
    DAY_S,
    DEAD_AFTER_S,
    DEAD_POLLS,
    PERMANENT_AFTER_S,
    PERMANENT_POLLS,
    QUARANTINE_POLLS,
    ChannelHealth,
    Evidence,
    diagnose,
    symptom_of,
)
from service.model import Notice, PollResult

URL, NEW = "https://example.org/feed", "https://example.net/feed"
A, B = "a" * 40, "b" * 40
WHY = "example.org answered 404."


def _after(
    symptom: str, *, polls: int, over_s: float, nodes: tuple[str, ...] = (A, B), condition: str = ""
) -> ChannelHealth:
    return ChannelHealth(symptom, condition, 0, Evidence(symptom, 1_000.0, 1_000.0 + over_s, polls, nodes))


def _failing(condition: str = "") -> ChannelHealth:
    return _after("failing", polls=DEAD_POLLS, over_s=DEAD_AFTER_S, condition=condition)


GOOD = ChannelHealth("", "")


@pytest.mark.parametrize(
    ("outcome", "status", "symptom"),
    [
        ("new", 200, ""),
        ("unchanged", 304, ""),
        (BadStatus.code, 410, "gone"),
        (BadStatus.code, 404, "failing"),
        (BadStatus.code, 500, "failing"),
        (BadStatus.code, 429, "busy"),
        (BadStatus.code, 503, "busy"),
        (HostNotFound.code, 0, "failing"),
        (TlsFailed.code, 0, "failing"),
        (NotAFeed.code, 200, "failing"),
        (BrokenFeed.code, 410, "failing"),
        (ParseKilled.code, 200, "deadly"),
        (BadStatus.code, 401, "failing"),
    ],
)
def test_a_poll_result_is_classified_as_a_symptom(outcome: str, status: int, symptom: str) -> None:
    assert symptom_of(URL, PollResult(A, 1.0, outcome, status)) == symptom


@pytest.mark.parametrize(
    ("url", "permanent_url", "symptom"),
    [
        (URL, NEW, f"moved:{NEW}"),
        (URL, URL, ""),
        (f"{URL}#main p", URL, ""),
        (f"{URL}#main p", NEW, f"moved:{NEW}#main p"),
    ],
)
def test_only_another_url_is_a_move_and_keeps_the_selector(url: str, permanent_url: str, symptom: str) -> None:
    assert symptom_of(url, PollResult(A, 1.0, "unchanged", 304), permanent_url) == symptom


def test_a_redirect_to_a_failing_url_is_no_move() -> None:
    assert symptom_of(URL, PollResult(A, 1.0, NotAFeed.code, 200), NEW) == "failing"


@pytest.mark.parametrize(("symptom", "notice"), [(f"moved:{NEW}", Notice("moved", NEW)), ("gone", Notice("dead", WHY))])
def test_a_move_or_410_needs_three_polls_over_a_day_by_two_nodes(symptom: str, notice: Notice) -> None:
    def told(polls: int, over_s: float, nodes: tuple[str, ...], pollers: int = 3) -> Notice | None:
        return diagnose(_after(symptom, polls=polls, over_s=over_s, nodes=nodes), pollers, WHY)

    assert told(PERMANENT_POLLS, PERMANENT_AFTER_S, (A, B)) == notice
    assert told(PERMANENT_POLLS - 1, PERMANENT_AFTER_S, (A, B)) is None
    assert told(PERMANENT_POLLS, PERMANENT_AFTER_S - 1, (A, B)) is None
    assert told(99, 99 * DAY_S, (A,)) is None
    assert told(PERMANENT_POLLS, PERMANENT_AFTER_S, (A,), pollers=1) == notice


def test_other_failures_need_thirty_days_and_many_polls() -> None:
    assert diagnose(_failing(), 3, WHY) == Notice("dead", WHY)
    assert diagnose(_after("failing", polls=DEAD_POLLS, over_s=DEAD_AFTER_S - 1), 3, WHY) is None
    assert diagnose(_after("failing", polls=DEAD_POLLS - 1, over_s=DEAD_AFTER_S), 3, WHY) is None
    assert diagnose(_after("failing", polls=999, over_s=DEAD_AFTER_S, nodes=(A,)), 3, WHY) is None


def test_three_successive_parser_kills_lead_to_quarantine() -> None:
    assert diagnose(_after("deadly", polls=QUARANTINE_POLLS, over_s=1, nodes=(A,)), 3, WHY) == Notice(
        "quarantined", WHY
    )
    assert diagnose(_after("deadly", polls=QUARANTINE_POLLS - 1, over_s=9 * DAY_S), 3, WHY) is None


@given(backoff_s=st.floats(0, DAY_S), pollers=st.integers(1, 9))
def test_a_busy_publisher_is_never_dead(backoff_s: float, pollers: int) -> None:
    assert diagnose(ChannelHealth("busy", "", backoff_s), pollers, WHY) is None


@pytest.mark.parametrize("condition", ["dead", "quarantined"])
def test_a_successful_poll_ends_a_condition(condition: str) -> None:
    assert diagnose(ChannelHealth("", condition), 3, "") == Notice("back")
    assert diagnose(_after(f"moved:{NEW}", polls=99, over_s=DEAD_AFTER_S, condition=condition), 3, "") == Notice("back")
    assert diagnose(GOOD, 3, "") is None


def test_a_notice_is_not_repeated_but_a_worse_one_is_sent() -> None:
    assert diagnose(_failing("dead"), 3, WHY) is None
    assert diagnose(_failing("quarantined"), 3, WHY) == Notice("dead", WHY)
    assert diagnose(_after("deadly", polls=9, over_s=1, condition="quarantined"), 3, WHY) is None


@given(
    symptom=st.sampled_from(["failing", "gone", "deadly", f"moved:{NEW}"]),
    condition=st.sampled_from(["", "dead", "quarantined"]),
    polls=st.integers(1, 99),
    over_s=st.floats(0, 99 * DAY_S),
    pollers=st.integers(1, 9),
)
def test_a_repeated_diagnosis_under_the_same_condition_has_no_notice(
    symptom: str, condition: str, polls: int, over_s: float, pollers: int
) -> None:
    """A second diagnosis under the condition of the first notice has no notice, or that of a move."""
    notice = diagnose(_after(symptom, polls=polls, over_s=over_s, condition=condition), pollers, WHY)
    if notice is not None and notice.kind != "moved":
        condition_after = "" if notice.kind == "back" else notice.kind
        again = diagnose(_after(symptom, polls=polls, over_s=over_s, condition=condition_after), pollers, WHY)
        assert again is None or again.kind == "moved"


@pytest.mark.parametrize("status", [401, 403])
def test_a_protected_channel_is_refused_after_two_polls_of_any_node(status: int) -> None:
    assert symptom_of(f"{URL}#login=reader", PollResult(A, 1.0, BadStatus.code, status)) == "refused"
    assert symptom_of(f"{URL}#login=reader", PollResult(A, 1.0, BadStatus.code, 404)) == "failing"
    assert diagnose(_after("refused", polls=1, over_s=0, nodes=(A,)), 3, WHY) is None
    assert diagnose(_after("refused", polls=2, over_s=1, nodes=(A,)), 3, WHY) == Notice("refused", WHY)
    assert diagnose(_after("refused", polls=9, over_s=9, condition="refused"), 3, WHY) is None
    assert diagnose(ChannelHealth("", "refused"), 3, "") == Notice("back")
