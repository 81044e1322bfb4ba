"""What a channel's documents look like decides which entries are new."""

import pytest

from service.feeds.identity import IdentityState, decide
from service.model import ParsedEntry, ParsedFeed
from tests.support.documents import item

URL = "https://example.com/feed"
NOW_S = 1_800_000_000.0


class Channel:
    """A channel that is polled again and again."""

    def __init__(self) -> None:
        self.state: IdentityState | None = None
        self.latest: list[str] = []

    def poll(self, *entries: ParsedEntry) -> list[str]:
        """Return the titles of what is new, oldest first."""
        feed = ParsedFeed(link="https://example.com/", entries=entries)
        decision = decide(self.state, feed, url=URL, now_s=NOW_S)
        self.state = decision.state
        self.latest = [entry.title for entry in decision.latest]
        return [entry.title for entry in decision.new]


def test_the_first_poll_sends_nothing_and_knows_the_latest() -> None:
    channel = Channel()
    assert channel.poll(*[item(str(number), number=number) for number in range(30)]) == []
    assert channel.latest == [f"Title {number}" for number in range(29, 19, -1)]


def test_new_entries_come_oldest_first_by_date() -> None:
    channel = Channel()
    channel.poll(item("a"))
    assert channel.poll(item("b", number=1), item("d", number=3), item("c", number=2), item("a")) == [
        "Title b",
        "Title c",
        "Title d",
    ]


@pytest.mark.parametrize("date", [None, NOW_S + 3 * 86400])
def test_without_usable_dates_the_document_order_counts(date: float | None) -> None:
    channel = Channel()
    channel.poll(item("a", published=None))
    new = channel.poll(item("c", published=date), item("b", published=1.7e9), item("a", published=None))
    assert new == ["Title b", "Title c"]
    assert channel.latest == ["Title c", "Title b", "Title a"]


def test_a_date_in_the_future_is_not_shown() -> None:
    decision = decide(None, ParsedFeed(entries=(item("a", published=NOW_S + 1e6),)), url=URL, now_s=NOW_S)
    assert decision.latest[0].published is None


def test_an_id_that_all_entries_share_does_not_hide_new_ones() -> None:
    channel = Channel()
    channel.poll(item("a", id="same"))
    assert channel.poll(item("b", id="same")) == ["Title b"]
    assert channel.poll(item("b", id="same"), item("a", id="same")) == []


def test_ids_made_up_at_every_poll_are_ignored_from_then_on() -> None:
    channel = Channel()
    channel.poll(item("a", id="1"), item("b", id="2"))
    assert channel.poll(item("c", id="3"), item("a", id="4"), item("b", id="5")) == ["Title c"]
    assert channel.poll(item("c", id="6"), item("a", id="7"), item("b", id="8")) == []


def test_a_feed_that_moves_to_https_sends_nothing_again() -> None:
    channel = Channel()
    channel.poll(item("a", id="http://example.com/a", link="http://www.example.com/a"))
    assert channel.poll(item("a", id="https://example.com/a", link="https://example.com/a?utm_source=rss")) == []


def test_a_feed_that_gains_or_loses_ids_sends_nothing_again() -> None:
    channel = Channel()
    channel.poll(item("a", id=""), item("b", id=""))
    assert channel.poll(item("a"), item("b")) == []
    assert channel.poll(item("a", id=""), item("b", id="")) == []


def test_a_link_to_the_home_page_identifies_nothing() -> None:
    channel = Channel()
    home = "https://example.com"
    channel.poll(item("a", id="", link=home))
    assert channel.poll(item("b", id="", link=home)) == ["Title b"]


def test_entries_that_differ_in_nothing_but_the_date_are_told_apart_by_it() -> None:
    channel = Channel()
    backup = {"id": "", "link": "", "title": "Backup done", "summary": ""}
    channel.poll(item("x", number=1, **backup), item("x", number=0, **backup))
    assert channel.poll(item("x", number=2, **backup), item("x", number=1, **backup)) == ["Backup done"]


def test_an_entry_with_nothing_in_it_is_left_out() -> None:
    channel = Channel()
    channel.poll()
    assert channel.poll(ParsedEntry(), item("a"), ParsedEntry()) == ["Title a"]


def test_entries_are_sent_as_plain_text_with_safe_links() -> None:
    entry = item("a", summary="<p>Hi <script>x</script></p><b>you</b>", link="javascript:alert(1)", title="A\u202eB")
    (sent,) = decide(None, ParsedFeed(entries=(entry,)), url=URL, now_s=NOW_S).latest
    assert (sent.title, sent.summary, sent.link) == ("AB", "Hi\nyou", "")


def test_keys_are_stable_and_distinct() -> None:
    feed = ParsedFeed(entries=(item("a"), item("b"), item("c", id="same"), item("d", id="same")))
    first = decide(None, feed, url=URL, now_s=NOW_S)
    again = decide(first.state, feed, url=URL, now_s=NOW_S)
    keys = [entry.key for entry in first.latest]
    assert keys == [entry.key for entry in again.latest]
    assert len(set(keys)) == 4
