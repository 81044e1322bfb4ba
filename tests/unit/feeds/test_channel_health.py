"""What is enough to give a channel up, to follow it elsewhere, or to say that it is back; and what never is."""

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
    recheck_delay_s,
    symptom_of,
)
from service.model import Notice, PollResult

URL, NEW = "https://example.org/feed", "https://example.net/feed"
A, B = "a" * 40, "b" * 40
WHY = "example.org answered 404."


def _case(
    charge: str, *, polls: int, over_s: float, nodes: tuple[str, ...] = (A, B), condition: str = ""
) -> ChannelHealth:
    return ChannelHealth(charge, condition, 0, Evidence(charge, 1_000.0, 1_000.0 + over_s, polls, nodes))


def _broken(condition: str = "") -> ChannelHealth:
    return _case("failing", polls=DEAD_POLLS, over_s=DEAD_AFTER_S, condition=condition)


GOOD = ChannelHealth("", "")


@pytest.mark.parametrize(
    ("outcome", "status", "charge"),
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
    ],
)
def test_a_poll_is_charged_with_how_it_ended(outcome: str, status: int, charge: str) -> None:
    assert symptom_of(URL, PollResult(A, 1.0, outcome, status)) == charge


@pytest.mark.parametrize(
    ("url", "permanent_url", "charge"),
    [
        (URL, NEW, f"moved:{NEW}"),
        (URL, URL, ""),
        (f"{URL}#main p", URL, ""),
        (f"{URL}#main p", NEW, f"moved:{NEW}#main p"),
    ],
)
def test_only_another_url_is_a_move_and_a_pages_selector_goes_along(url: str, permanent_url: str, charge: str) -> None:
    assert symptom_of(url, PollResult(A, 1.0, "unchanged", 304), permanent_url) == charge


def test_a_redirect_to_something_broken_is_no_move() -> None:
    assert symptom_of(URL, PollResult(A, 1.0, NotAFeed.code, 200), NEW) == "failing"


@pytest.mark.parametrize(("charge", "notice"), [(f"moved:{NEW}", Notice("moved", NEW)), ("gone", Notice("dead", WHY))])
def test_a_move_and_a_410_are_believed_after_three_polls_over_a_day_from_two_nodes(charge: str, notice: Notice) -> None:
    def told(polls: int, over_s: float, nodes: tuple[str, ...], pollers: int = 3) -> Notice | None:
        return diagnose(_case(charge, polls=polls, over_s=over_s, nodes=nodes), pollers, WHY)

    assert told(PERMANENT_POLLS, PERMANENT_AFTER_S, (A, B)) == notice
    assert told(PERMANENT_POLLS - 1, PERMANENT_AFTER_S, (A, B)) is None
    assert told(PERMANENT_POLLS, PERMANENT_AFTER_S - 1, (A, B)) is None
    assert told(99, 99 * DAY_S, (A,)) is None
    assert told(PERMANENT_POLLS, PERMANENT_AFTER_S, (A,), pollers=1) == notice


def test_any_other_failure_is_for_good_after_thirty_days_in_which_it_was_seen_often() -> None:
    assert diagnose(_broken(), 3, WHY) == Notice("dead", WHY)
    assert diagnose(_case("failing", polls=DEAD_POLLS, over_s=DEAD_AFTER_S - 1), 3, WHY) is None
    assert diagnose(_case("failing", polls=DEAD_POLLS - 1, over_s=DEAD_AFTER_S), 3, WHY) is None
    assert diagnose(_case("failing", polls=999, over_s=DEAD_AFTER_S, nodes=(A,)), 3, WHY) is None


def test_three_deadly_documents_in_a_row_are_enough_for_a_quarantine_whoever_read_them() -> None:
    assert diagnose(_case("deadly", polls=QUARANTINE_POLLS, over_s=1, nodes=(A,)), 3, WHY) == Notice("quarantined", WHY)
    assert diagnose(_case("deadly", polls=QUARANTINE_POLLS - 1, over_s=9 * DAY_S), 3, WHY) is None


@given(refusals=st.integers(0, 10**6), pollers=st.integers(1, 9))
def test_a_busy_publisher_is_never_given_up(refusals: int, pollers: int) -> None:
    assert diagnose(ChannelHealth("busy", "", refusals), pollers, WHY) is None


@pytest.mark.parametrize("condition", ["dead", "quarantined"])
def test_a_good_poll_brings_back_what_was_given_up(condition: str) -> None:
    assert diagnose(ChannelHealth("", condition), 3, "") == Notice("back")
    assert diagnose(_case(f"moved:{NEW}", polls=99, over_s=DEAD_AFTER_S, condition=condition), 3, "") == Notice("back")
    assert diagnose(GOOD, 3, "") is None


def test_nothing_is_told_twice_but_what_is_worse_is() -> None:
    assert diagnose(_broken("dead"), 3, WHY) is None
    assert diagnose(_broken("quarantined"), 3, WHY) == Notice("dead", WHY)
    assert diagnose(_case("deadly", polls=9, over_s=1, condition="quarantined"), 3, WHY) is None


@given(
    charge=st.sampled_from(["failing", "gone", "deadly", f"moved:{NEW}"]),
    condition=st.sampled_from(["", "dead", "quarantined"]),
    polls=st.integers(1, 99),
    over_s=st.floats(0, 99 * DAY_S),
    pollers=st.integers(1, 9),
)
def test_once_a_notice_is_told_the_same_case_asks_for_no_other(
    charge: str, condition: str, polls: int, over_s: float, pollers: int
) -> None:
    """Notices settle: judging again under the condition that a notice leads to gives nothing, or the move it hid."""
    notice = diagnose(_case(charge, polls=polls, over_s=over_s, condition=condition), pollers, WHY)
    if notice is not None and notice.kind != "moved":
        settled = "" if notice.kind == "back" else notice.kind
        again = diagnose(_case(charge, polls=polls, over_s=over_s, condition=settled), pollers, WHY)
        assert again is None or again.kind == "moved"


def test_what_was_given_up_is_asked_once_a_day_while_it_fails() -> None:
    assert (
        recheck_delay_s(_broken("dead"))
        == recheck_delay_s(_case("deadly", polls=9, over_s=1, condition="quarantined"))
        == DAY_S
    )
    assert recheck_delay_s(_broken()) == recheck_delay_s(ChannelHealth("", "dead")) == 0.0
