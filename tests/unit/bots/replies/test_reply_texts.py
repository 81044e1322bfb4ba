"""Texts of replies: every error has a text of its own, and every message is safe to send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.notification_text import render_notification
from bots.i18n.translator import get_translator
from bots.replies.error_texts import error_text, outcome_text
from bots.replies.formatting import SubscribedChannel
from bots.replies.subscription_texts import latest_entries, status_text, subscription_list
from service import errors
from service.feeds.parsing.html_text import one_line
from service.model import Change, Channel, Delta, Entry
from tests.unit.bots.text_safety import hostile, safe

NOW_S = 1_700_000_000.0
ENGLISH = get_translator("en")
URL = "https://example.org/feed"

CAUSES = [
    errors.BadUrl("example: that is not a host."),
    errors.AddressRefused("10.0.0.1 is private."),
    errors.HostNotFound("There is no host named example.org."),
    errors.Unreachable("example.org cannot be reached: connection refused."),
    errors.TlsFailed("The TLS handshake with example.org failed (wrong version number)."),
    *(errors.BadStatus("", status=status) for status in (401, 403, 404, 410, 429, 503)),
    errors.BadRedirect(""),
    errors.BadHttp("The response of example.org is not valid HTTP."),
    errors.TooLarge(""),
    errors.EmptyBody("The document is empty. Please check the address, or try again later."),
    errors.NotAFeed(""),
    errors.BrokenFeed(""),
    errors.ParseKilled(""),
    errors.StoreUnavailable(""),
    errors.NoWorker(""),
    errors.AssignmentPending(""),
]


def channels(count: int, title: str = "A channel") -> list[Channel]:
    return [Channel(f"{i:040x}", f"https://example.org/{i}", title) for i in range(count)]


def news(channel: Channel, *entries: Entry) -> Delta:
    return Delta(channel.id, 1, 2, NOW_S, tuple(Change("addition", entry) for entry in entries))


def test_each_error_has_a_distinct_text() -> None:
    said = [error_text(error, URL, ENGLISH) for error in CAUSES]
    assert len(set(said)) == len(CAUSES)
    assert all(words.endswith((".", "?")) and not words.endswith(".).") for words in said)


@pytest.mark.parametrize("error", CAUSES, ids=lambda error: f"{error.code}")
def test_error_texts_are_complete_with_and_without_a_url(error: errors.CoronetError) -> None:
    assert "{" not in error_text(error, URL, ENGLISH) + error_text(error, "", ENGLISH)
    assert "“”" not in error_text(error, "", ENGLISH)
    assert error_text(error, "", ENGLISH)[0].isupper()


def test_error_texts_are_unchanged_by_serialization() -> None:
    for error in CAUSES:
        assert error_text(errors.from_fault(errors.to_fault(error)), URL, ENGLISH) == error_text(error, URL, ENGLISH)


def test_poll_outcomes_have_short_texts() -> None:
    assert outcome_text("host-not-found", ENGLISH) == "host not found"
    assert outcome_text("something new", ENGLISH) == "failing"


def test_status_shows_how_long_a_channel_has_been_failing() -> None:
    channel = channels(1)[0]
    failing = [(SubscribedChannel(1, channel), "bad-status", NOW_S - 7_200)]
    assert status_text(1, 3, failing, NOW_S, ENGLISH).endswith("#1 A channel: server error (for 2 hours)")


def test_long_lists_state_the_number_of_omitted_items() -> None:
    followed = tuple(SubscribedChannel(n, channel) for n, channel in enumerate(channels(200, "T" * 100), 1))
    said = subscription_list(followed, 200, "", ENGLISH)
    shown = said.count("\n#")
    assert said.endswith(f"and {200 - shown} more\nTo narrow it down, add a word, e.g. `list news`.")
    assert safe(said)


def test_a_notification_has_channel_title_link_and_text() -> None:
    channel = channels(1)[0]
    entry = Entry("k", "A title", "https://example.org/a", "Some text. " * 60)
    said = render_notification([channel], [news(channel, entry)], {}, {}, ENGLISH)
    head, title, link, summary = said.splitlines()
    assert (head, title, link) == ("*A channel*", "A title", "https://example.org/a")
    assert len(summary) <= 300


def test_a_notification_shows_five_entries_and_lists_the_titles_of_the_others() -> None:
    channel = channels(1)[0]
    entries = [Entry(f"k{n}", f"Entry {n}", f"https://example.org/{n}") for n in range(17)]
    said = render_notification([channel], [news(channel, *entries)], {}, {}, ENGLISH)
    assert said.count("https://") == 5
    assert "and 12 more: Entry 5 · Entry 6 · " in said
    assert said.endswith("Entry 16")


def test_an_entry_changed_twice_is_shown_once_in_its_last_state() -> None:
    channel = channels(1)[0]
    said = render_notification(
        [channel], [news(channel, Entry("k", "Draft")), news(channel, Entry("k", "Final"))], {}, {}, ENGLISH
    )
    assert said == "*A channel*\nFinal"


def test_changes_of_an_unknown_channel_are_not_rendered() -> None:
    assert render_notification([], [news(channels(1)[0], Entry("k", "T"))], {}, {}, ENGLISH) == ""


@given(st.lists(st.tuples(hostile, hostile, hostile), min_size=1, max_size=40), hostile, st.integers(1, 20))
def test_notifications_with_any_publisher_text_are_safe(
    written: list[tuple[str, str, str]], title: str, count: int
) -> None:
    told = channels(count, title)
    entries = [Entry(str(n), *parts) for n, parts in enumerate(written)]
    said = render_notification(told, [news(channel, *entries) for channel in told], {}, {}, ENGLISH)
    assert safe(said)
    assert len(said.split("\n\n")) >= count, "every channel has its place"


@given(hostile, hostile, st.integers(1, 30))
def test_replies_that_quote_any_text_are_safe(title: str, word: str, count: int) -> None:
    followed = SubscribedChannel(1, channels(1, title)[0])
    entries = tuple(Entry(str(n), word, title, word) for n in range(count))
    assert safe(latest_entries(followed, entries, ENGLISH))
    assert safe(subscription_list((), 1, word, ENGLISH))
    assert safe(error_text(errors.BadUrl(word), one_line(title, 200), ENGLISH))


def test_a_notification_states_the_number_of_unavailable_updates() -> None:
    (channel,) = channels(1)
    said = render_notification([channel], [news(channel, Entry("k", "Fresh"))], {channel.id: 3}, {}, ENGLISH)
    assert "3 earlier updates are no longer available" in said
    assert said.index("no longer available") < said.index("Fresh")
    assert "1 earlier update is" in render_notification([channel], [], {channel.id: 1}, {}, ENGLISH)


def test_braces_in_user_input_are_not_placeholders() -> None:
    said = error_text(errors.BadUrl("{it} is not a host {status}."), "http://{it}", ENGLISH)
    assert said.endswith("{it} is not a host {status}.")
