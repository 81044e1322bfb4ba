"""What is enough to give a channel up, to follow it elsewhere, or to say that it is back; and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadStatus, BrokenFeed, HostNotFound, NotAFeed, ParseKilled, TlsFailed
from service.feeds.channel_health import (
    BROKEN_POLLS,
    BROKEN_S,
    DAY_S,
    DEADLY_POLLS,
    SETTLED_POLLS,
    SETTLED_S,
    Case,
    Evidence,
    charge_of,
    judge,
    rest_s,
)
from service.model import Notice, PollResult

URL, NEW = "https://example.org/feed", "https://example.net/feed"
A, B = "a" * 40, "b" * 40
WHY = "example.org answered 404."


def _case(charge: str, *, polls: int, over_s: float, nodes: tuple[str, ...] = (A, B), condition: str = "") -> Case:
    return Case(charge, condition, 0, Evidence(charge, 1_000.0, 1_000.0 + over_s, polls, nodes))


def _broken(condition: str = "") -> Case:
    return _case("failing", polls=BROKEN_POLLS, over_s=BROKEN_S, condition=condition)


GOOD = Case("", "")


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
    assert charge_of(URL, PollResult(A, 1.0, outcome, status)) == charge


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
    assert charge_of(url, PollResult(A, 1.0, "unchanged", 304), permanent_url) == charge


def test_a_redirect_to_something_broken_is_no_move() -> None:
    assert charge_of(URL, PollResult(A, 1.0, NotAFeed.code, 200), NEW) == "failing"


@pytest.mark.parametrize(("charge", "notice"), [(f"moved:{NEW}", Notice("moved", NEW)), ("gone", Notice("dead", WHY))])
def test_a_move_and_a_410_are_believed_after_three_polls_over_a_day_from_two_nodes(charge: str, notice: Notice) -> None:
    def told(polls: int, over_s: float, nodes: tuple[str, ...], pollers: int = 3) -> Notice | None:
        return judge(_case(charge, polls=polls, over_s=over_s, nodes=nodes), pollers, WHY)

    assert told(SETTLED_POLLS, SETTLED_S, (A, B)) == notice
    assert told(SETTLED_POLLS - 1, SETTLED_S, (A, B)) is None
    assert told(SETTLED_POLLS, SETTLED_S - 1, (A, B)) is None
    assert told(99, 99 * DAY_S, (A,)) is None
    assert told(SETTLED_POLLS, SETTLED_S, (A,), pollers=1) == notice


def test_any_other_failure_is_for_good_after_thirty_days_in_which_it_was_seen_often() -> None:
    assert judge(_broken(), 3, WHY) == Notice("dead", WHY)
    assert judge(_case("failing", polls=BROKEN_POLLS, over_s=BROKEN_S - 1), 3, WHY) is None
    assert judge(_case("failing", polls=BROKEN_POLLS - 1, over_s=BROKEN_S), 3, WHY) is None
    assert judge(_case("failing", polls=999, over_s=BROKEN_S, nodes=(A,)), 3, WHY) is None


def test_three_deadly_documents_in_a_row_are_enough_for_a_quarantine_whoever_read_them() -> None:
    assert judge(_case("deadly", polls=DEADLY_POLLS, over_s=1, nodes=(A,)), 3, WHY) == Notice("quarantined", WHY)
    assert judge(_case("deadly", polls=DEADLY_POLLS - 1, over_s=9 * DAY_S), 3, WHY) is None


@given(refusals=st.integers(0, 10**6), pollers=st.integers(1, 9))
def test_a_busy_publisher_is_never_given_up(refusals: int, pollers: int) -> None:
    assert judge(Case("busy", "", refusals), pollers, WHY) is None


@pytest.mark.parametrize("condition", ["dead", "quarantined"])
def test_a_good_poll_brings_back_what_was_given_up(condition: str) -> None:
    assert judge(Case("", condition), 3, "") == Notice("back")
    assert judge(_case(f"moved:{NEW}", polls=99, over_s=BROKEN_S, condition=condition), 3, "") == Notice("back")
    assert judge(GOOD, 3, "") is None


def test_nothing_is_told_twice_but_what_is_worse_is() -> None:
    assert judge(_broken("dead"), 3, WHY) is None
    assert judge(_broken("quarantined"), 3, WHY) == Notice("dead", WHY)
    assert judge(_case("deadly", polls=9, over_s=1, condition="quarantined"), 3, WHY) is None


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
    notice = judge(_case(charge, polls=polls, over_s=over_s, condition=condition), pollers, WHY)
    if notice is not None and notice.kind != "moved":
        settled = "" if notice.kind == "back" else notice.kind
        again = judge(_case(charge, polls=polls, over_s=over_s, condition=settled), pollers, WHY)
        assert again is None or again.kind == "moved"


def test_what_was_given_up_is_asked_once_a_day_while_it_fails() -> None:
    assert rest_s(_broken("dead")) == rest_s(_case("deadly", polls=9, over_s=1, condition="quarantined")) == DAY_S
    assert rest_s(_broken()) == rest_s(Case("", "dead")) == 0.0
