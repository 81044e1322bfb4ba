"""Formatting of values for pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.console import formatting, polling_descriptions
from service.console.formatting import TextChange, differences, format_duration, parse_duration
from service.console.polling_descriptions import describe_bound
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.errors import UserError
from service.model import PollingHints
from tests.support.poll_explanations import explanation


@pytest.mark.parametrize(
    ("length_s", "text"),
    [(0.0401, "40 ms"), (1, "1 s"), (59.4, "59 s"), (60, "1 min"), (3600, "1 h"), (86400, "24 h"), (172800, "2 days")],
)
def test_duration_has_one_unit(length_s: float, text: str) -> None:
    assert formatting.duration(length_s) == text


def test_keep_units_inserts_no_break_spaces() -> None:
    assert (
        formatting.keep_units("3 polls per channel, delay 12 h")
        == "3\N{NO-BREAK SPACE}polls per channel, delay 12\N{NO-BREAK SPACE}h"
    )


def test_a_time_in_the_near_future_is_now() -> None:
    assert formatting.ago(100.5, 100.0) == "just now"
    assert formatting.ago(40.0, 100.0) == "1 min ago"


def test_clock_uses_the_time_zone_with_daylight_saving() -> None:
    assert formatting.clock(1_750_000_000, "Europe/Berlin") == "15 Jun 2025, 17:06:40 CEST"
    assert formatting.clock(1_766_000_000, "Europe/Berlin") == "17 Dec 2025, 20:33:20 CET"
    assert formatting.clock(1_766_000_000, "Pacific/Auckland", "day") == "18 Dec 2025"
    assert formatting.clock(1e300, "UTC") == "—"


@pytest.mark.parametrize(
    ("outcome", "label"),
    [("unchanged", "Unchanged"), ("tls-failed", "TLS failed"), ("bad-http", "Bad HTTP"), ("not-a-feed", "Not a feed")],
)
def test_outcomes_have_labels(outcome: str, label: str) -> None:
    assert formatting.outcome_label(outcome) == label


def test_count_agrees_with_its_noun() -> None:
    assert formatting.count(1, "node") == "1 node"
    assert formatting.count(1204, "node") == "1,204 nodes"
    assert formatting.count(0, "person", "people") == "0 people"


@pytest.mark.parametrize(
    ("hints", "text"),
    [
        (PollingHints(), ""),
        (PollingHints(ttl_s=3600.0, update_period_s=1800.0), "at most every 1 h"),
        (PollingHints(ttl_s=1800.0, update_period_s=30 * 86400.0), "at most every 30 min"),
        (PollingHints(update_period_s=30 * 86400.0), "at most every 30 days (ignored: more than a day)"),
        (PollingHints(skip_hours=(0, 1, 2, 22, 23)), "not from 0:00 to 3:00 and 22:00 to 24:00 UTC"),
        (PollingHints(ttl_s=7200.0, skip_days=(5, 6)), "at most every 2 h; not on Saturday, Sunday"),
    ],
)
def test_polling_hints_are_described(hints: PollingHints, text: str) -> None:
    assert polling_descriptions.describe_polling_hints(hints) == text


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,x", "//evil.example", "http://[", ""])
def test_only_web_addresses_become_links(link: str) -> None:
    assert formatting.web_address(link) == ""


def test_a_time_beyond_the_calendar_is_a_dash() -> None:
    assert formatting.instant(1e300) == "—"
    assert formatting.instant(0) == "1970-01-01 00:00:00Z"


@given(st.text(), st.text())
def test_differences_contain_both_texts(before: str, after: str) -> None:
    changes = differences(before, after)
    old, new = (
        "".join(change.text for change in changes if change.kind != other).split() for other in ("added", "removed")
    )
    assert old == before.split()[:400]
    assert new == after.split()[:400]


@pytest.mark.parametrize(
    ("text", "length_s"),
    [("90", 90.0), ("90 s", 90.0), ("15 min", 900.0), ("1,5 h", 5_400.0), ("2 days", 172_800.0), ("1 DAY", 86_400.0)],
)
def test_durations_are_parsed_in_common_spellings(text: str, length_s: float) -> None:
    assert parse_duration(text) == length_s


@pytest.mark.parametrize("text", ["", "soon", "-1 s", "1 year", "1e9", "9" * 30])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(1, 10**7))
def test_formatted_durations_can_be_parsed(length_s: int) -> None:
    assert parse_duration(format_duration(float(length_s))) == pytest.approx(length_s, rel=1e-5)


@pytest.mark.timeout(20)
def test_texts_with_many_repeated_words_are_not_compared() -> None:
    before, after = "a " * 400, "a b " * 200
    assert differences(before, after) == [TextChange("removed", before.rstrip()), TextChange("added", after.rstrip())]
    assert differences(before, before) == [TextChange("same", before.rstrip())]
    assert differences("a" + " " * 200_000, "a") == [TextChange("same", "a")]


@pytest.mark.parametrize(
    ("bound", "limits", "words"),
    [
        (BindingConstraint.CHANNEL_BUDGET, NO_LIMITS, "The limit for a public channel with 1,200 subscribers"),
        (BindingConstraint.NODES, NO_LIMITS, "All nodes take part"),
        (BindingConstraint.PUBLISHER, PollingLimits(hint_s=3_600), "The publisher, which asks for at least 1 h"),
        (BindingConstraint.FAILURE, PollingLimits(failure_s=86_400), "Failures: at least 24 h between polls until"),
        (BindingConstraint.PAUSE, PollingLimits(paused_until_s=8_200), "A pause for another 2 h"),
    ],
)
def test_the_binding_constraint_of_a_channel_is_described(
    bound: BindingConstraint, limits: PollingLimits, words: str
) -> None:
    reason = explanation(
        "0" * 40, ["0" * 40, "8" * 40], 0.0, 900.0, bound, now_s=1_000.0, limits=limits, subscribers=1_200
    )
    assert describe_bound(reason, 1_000.0).startswith(words)
