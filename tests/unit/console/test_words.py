"""What the console says."""

from typing import Any

import pytest

from service.console import formatting
from service.console.auth.accounts import Passwords
from service.console.auth.middleware import csrf_token
from service.console.error_responses import problem, status_of
from service.console.pages.overview import Overview, needs_attention
from service.errors import BadUrl, CoronetError, NotSubscribed, StaleVersion, StoreUnavailable, TlsFailed
from service.model import PollingHints


def _sentences(*, silence_s: float = 100.0, unpolled: tuple[int, str] = (0, ""), **change: Any) -> tuple[str, ...]:
    """What needs attention in a fleet that is well but for this change."""
    well = {"nodes": 2, "channels": 5, "subscriptions": 5, "users": 1, "outbox_users": 0, "failing": 0}
    polls = {"polls_per_minute": {"unchanged": 9.0}, "budget_polls_per_minute": None, "messages_per_minute": 0.0}
    delays = dict.fromkeys(("detection", "delivery", "receipt"))
    fleet = Overview(**{**well, **polls, **delays, "attention": (), **change})
    return needs_attention(fleet, silence_s, 900.0, unpolled)


@pytest.mark.parametrize(
    ("length_s", "words"),
    [(0.0401, "40 ms"), (1, "1 s"), (59.4, "59 s"), (60, "1 min"), (3600, "1 h"), (86400, "24 h"), (172800, "2 days")],
)
def test_lengths_of_time_have_one_unit(length_s: float, words: str) -> None:
    assert formatting.duration(length_s) == words


def test_no_line_ends_between_a_number_and_its_unit() -> None:
    assert (
        formatting.tied("3 polls per channel, wait 12 h")
        == "3\N{NO-BREAK SPACE}polls per channel, wait 12\N{NO-BREAK SPACE}h"
    )


def test_a_time_just_ahead_of_our_clock_is_now() -> None:
    assert formatting.ago(100.5, 100.0) == "just now"
    assert formatting.ago(40.0, 100.0) == "1 min ago"


def test_a_clock_goes_by_its_zone_and_the_time_of_year() -> None:
    assert formatting.clock(1_750_000_000, "Europe/Berlin") == "15 Jun 2025, 17:06:40 CEST"
    assert formatting.clock(1_766_000_000, "Europe/Berlin") == "17 Dec 2025, 20:33:20 CET"
    assert formatting.clock(1_766_000_000, "Pacific/Auckland", "day") == "18 Dec 2025"
    assert formatting.clock(1e300, "UTC") == "—"


@pytest.mark.parametrize(("size_bytes", "words"), [(0, "0 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB")])
def test_sizes_have_units(size_bytes: int, words: str) -> None:
    assert formatting.size(size_bytes) == words


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("unchanged", "Unchanged"), ("tls-failed", "TLS failed"), ("bad-http", "Bad HTTP"), ("not-a-feed", "Not a feed")],
)
def test_outcomes_are_words(outcome: str, words: str) -> None:
    assert formatting.outcome_words(outcome) == words


def test_numbers_agree_with_their_nouns() -> None:
    assert formatting.count(1, "node") == "1 node"
    assert formatting.count(1204, "node") == "1,204 nodes"
    assert formatting.count(0, "person", "people") == "0 people"


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        (PollingHints(), ""),
        (PollingHints(ttl_s=3600.0, update_period_s=1800.0), "1 h between two polls"),
        (PollingHints(ttl_s=1800.0, update_period_s=30 * 86400.0), "30 min between two polls"),
        (PollingHints(update_period_s=30 * 86400.0), "30 days between two polls (ignored: more than a day)"),
        (PollingHints(skip_hours=(0, 1, 2, 22, 23)), "none from 0:00 to 3:00 and 22:00 to 24:00 UTC"),
        (PollingHints(ttl_s=7200.0, skip_days=(5, 6)), "2 h between two polls; none on Saturday, Sunday"),
    ],
)
def test_what_a_publisher_wishes_is_said_in_words(wishes: PollingHints, words: str) -> None:
    assert formatting.wishes_in_words(wishes) == words


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,x", "//evil.example", "http://[", ""])
def test_only_web_addresses_become_links(link: str) -> None:
    assert formatting.web_address(link) == ""


def test_a_date_beyond_the_calendar_is_a_dash() -> None:
    assert formatting.instant(1e300) == "—"
    assert formatting.instant(0) == "1970-01-01 00:00:00Z"


def test_all_is_well_with_two_nodes_that_poll() -> None:
    assert _sentences() == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes": 0}, "No worker runs"),
        ({"nodes": 1}, "Only one worker"),
        ({"outbox_users": 1200}, "1,200 people wait"),
        (
            {"polls_per_minute": {"unchanged": 5.0, "host-not-found": 5.0}},
            "50 % of the polls fail, mostly with “Host not",
        ),
        ({"silence_s": 3600.0}, "Nothing was polled for 1 h"),
        ({"unpolled": (1, "A feed")}, "1 channel was not polled for"),
        ({"unpolled": (1200, "A feed")}, "1,200 channels were not polled for"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_action(change: dict[str, Any], words: str) -> None:
    (sentence,) = _sentences(**change)
    assert sentence.startswith(words)
    assert ":" in sentence


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadUrl("x"), 422),
        (NotSubscribed("x"), 404),
        (TlsFailed("x"), 502),
        (StoreUnavailable("x"), 503),
        (StaleVersion("x"), 503),
        (CoronetError("x"), 500),
    ],
)
def test_each_branch_of_the_error_tree_has_its_status(error: CoronetError, status: int) -> None:
    assert status_of(error) == status


def test_a_problem_without_a_code_of_its_own_is_named_by_its_status() -> None:
    assert problem(404, "Gone.").code == "not-found"


def test_csrf_tokens_differ_by_cookie_and_do_not_show_it() -> None:
    assert csrf_token("a") == csrf_token("a")
    assert csrf_token("a") != csrf_token("b")
    assert "secret-cookie" not in csrf_token("secret-cookie")


async def test_a_password_fits_its_own_hash_only() -> None:
    passwords = Passwords()
    stored = await passwords.hash("correct horse")
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert await passwords.verify("correct horse", stored)
    assert not await passwords.verify("wrong horse", stored)
    assert not await passwords.verify("correct horse", "")
    assert not await passwords.verify("correct horse", "not a hash")
