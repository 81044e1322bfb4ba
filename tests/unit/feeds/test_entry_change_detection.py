"""Detection of new entries in the documents of a channel."""

import msgspec
import pytest

from service.feeds.entries.entry_change_detection import FeedState, detect_entry_changes
from service.feeds.entries.known_entries import ROW_BYTES
from service.model import Enclosure, ParsedEntry, ParsedFeed
from tests.support.feed_documents import item

URL = "https://example.com/feed"
NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


class Channel:
    """A channel that is polled repeatedly."""

    def __init__(self) -> None:
        self.state: FeedState | None = None
        self.latest: list[str] = []
        self.now_s = NOW_S

    def poll(self, *entries: ParsedEntry) -> list[str]:
        """Return the titles of the new entries, oldest first."""
        feed = ParsedFeed(link="https://example.com/", entries=entries)
        detected = detect_entry_changes(self.state, feed, url=URL, now_s=self.now_s)
        self.state = detected.state
        self.latest = [entry.title for entry in detected.latest]
        return [entry.title for entry in detected.new]


def test_the_first_poll_reports_nothing_new_and_the_latest_entries() -> None:
    channel = Channel()
    assert channel.poll(*[item(str(number), number=number) for number in range(30)]) == []
    assert channel.latest == [f"Title {number}" for number in range(29, 19, -1)]


def test_new_entries_are_sorted_oldest_first() -> None:
    channel = Channel()
    channel.poll(item("a"))
    assert channel.poll(item("b", number=1), item("d", number=3), item("c", number=2), item("a")) == [
        "Title b",
        "Title c",
        "Title d",
    ]


@pytest.mark.parametrize("date", [None, NOW_S + 3 * 86400])
def test_entries_without_valid_dates_keep_the_document_order(date: float | None) -> None:
    channel = Channel()
    channel.poll(item("a", published=None))
    document = [item("c", published=date), item("b", published=1.7e9), item("a", published=None)]
    assert channel.poll(*document) == ["Title b", "Title c"]
    newcomer = Channel()
    newcomer.poll(*document)
    assert newcomer.latest == ["Title c", "Title b", "Title a"]


def test_a_date_in_the_future_is_omitted() -> None:
    detected = detect_entry_changes(None, ParsedFeed(entries=(item("a", published=NOW_S + 1e6),)), url=URL, now_s=NOW_S)
    assert detected.latest[0].published is None


def test_an_id_that_all_entries_share_does_not_hide_new_ones() -> None:
    channel = Channel()
    channel.poll(item("a", id="same"))
    assert channel.poll(item("b", id="same")) == ["Title b"]
    assert channel.poll(item("b", id="same"), item("a", id="same")) == []


def test_ids_generated_at_each_request_are_ignored() -> None:
    channel = Channel()
    channel.poll(item("a", id="1"), item("b", id="2"))
    assert channel.poll(item("c", id="3"), item("a", id="4"), item("b", id="5")) == ["Title c"]
    assert channel.poll(item("c", id="6"), item("a", id="7"), item("b", id="8")) == []


def test_entries_are_known_after_a_move_to_https() -> None:
    channel = Channel()
    channel.poll(item("a", id="http://example.com/a", link="http://www.example.com/a"))
    assert channel.poll(item("a", id="https://example.com/a", link="https://example.com/a?utm_source=rss")) == []


def test_entries_are_known_after_the_feed_gains_or_loses_ids() -> None:
    channel = Channel()
    channel.poll(item("a", id=""), item("b", id=""))
    assert channel.poll(item("a"), item("b")) == []
    assert channel.poll(item("a", id=""), item("b", id="")) == []


def test_a_link_to_the_home_page_identifies_nothing() -> None:
    channel = Channel()
    home = "https://example.com"
    channel.poll(item("a", id="", link=home))
    assert channel.poll(item("b", id="", link=home)) == ["Title b"]


def test_entries_without_id_and_link_are_distinguished_by_date() -> None:
    channel = Channel()
    backup = {"id": "", "link": "", "title": "Backup done", "summary": ""}
    channel.poll(item("x", number=1, **backup), item("x", number=0, **backup))
    assert channel.poll(item("x", number=2, **backup), item("x", number=1, **backup)) == ["Backup done"]


def test_an_empty_entry_is_ignored() -> None:
    channel = Channel()
    channel.poll(item("z"))
    assert channel.poll(ParsedEntry(), item("a"), ParsedEntry()) == ["Title a"]


def test_entries_are_plain_text_with_safe_links() -> None:
    entry = item("a", summary="<p>Hi <script>x</script></p><b>you</b>", link="javascript:alert(1)", title="A\u202eB")
    (sent,) = detect_entry_changes(None, ParsedFeed(entries=(entry,)), url=URL, now_s=NOW_S).latest
    assert (sent.title, sent.summary, sent.link) == ("AB", "Hi\nyou", "")


def test_new_entries_have_safe_files_and_long_texts_and_the_latest_are_excerpts() -> None:
    files = (Enclosure("http://ho st/a.mp3", "audio/mpeg"), Enclosure("https://EXAMPLE.com/b.mp3", "audio/mpeg", 7, 9))
    entry = msgspec.structs.replace(
        item("a", summary="word " * 1_000), enclosures=files, image="https://example.com/a b.png"
    )
    feed = ParsedFeed(entries=(entry,))
    first = detect_entry_changes(None, feed, url=URL, now_s=NOW_S)
    assert [(len(each.summary) <= 600, each.enclosures) for each in first.latest] == [(True, ())]
    begun = detect_entry_changes(None, ParsedFeed(entries=(item("z"),)), url=URL, now_s=NOW_S).state
    (sent,) = detect_entry_changes(begun, feed, url=URL, now_s=NOW_S).new
    assert 1_900 < len(sent.summary) <= 2_000
    assert (sent.image, sent.enclosures) == ("", (Enclosure("https://example.com/b.mp3", "audio/mpeg", 7, 9),))


def test_keys_are_stable_and_distinct() -> None:
    feed = ParsedFeed(entries=(item("a"), item("b"), item("c", id="same"), item("d", id="same")))
    first = detect_entry_changes(None, feed, url=URL, now_s=NOW_S)
    again = detect_entry_changes(
        detect_entry_changes(None, ParsedFeed(entries=(item("z"),)), url=URL, now_s=NOW_S).state,
        feed,
        url=URL,
        now_s=NOW_S,
    )
    keys = [entry.key for entry in first.latest]
    assert keys == [entry.key for entry in reversed(again.new)]
    assert len(set(keys)) == 4


def test_entries_that_return_after_an_empty_document_are_not_new() -> None:
    channel = Channel()
    entries = [item(str(number)) for number in range(20)]
    channel.poll(*entries)
    assert [channel.poll(), channel.poll(*entries[:3]), channel.poll(*entries)] == [[], [], []]


def test_entries_of_a_feed_that_was_empty_are_new_unless_older_than_the_first_poll() -> None:
    channel = Channel()
    channel.poll()
    channel.poll()
    channel.now_s += 10 * DAY_S
    dates = {"just now": 10.0, "since": 1.0, "the hour before": -0.04, "two days before": -2.0, "long ago": -900.0}
    entries = [item(name, published=NOW_S + days * DAY_S) for name, days in dates.items()]
    assert channel.poll(*entries) == ["Title the hour before", "Title since", "Title just now"]
    assert channel.poll(item("more", published=NOW_S - 900 * DAY_S), *entries) == ["Title more"]


@pytest.mark.parametrize("date", [None, NOW_S + 3 * DAY_S])
def test_the_first_three_undated_entries_of_a_feed_that_was_empty_are_new(date: float | None) -> None:
    channel = Channel()
    channel.poll()
    entries = [item(str(number), published=date) for number in range(200)]
    assert channel.poll(*entries) == ["Title 2", "Title 1", "Title 0"]
    assert channel.poll(item("next", published=None), *entries) == ["Title next"]


@pytest.mark.parametrize(("days", "resent"), [(89, 0), (92, 20)])
def test_entries_seen_within_90_days_are_known_beyond_the_last_500(days: int, resent: int) -> None:
    channel = Channel()
    first = [item(f"first {number}") for number in range(20)]
    channel.poll(*first)
    for day in range(days):
        channel.now_s += DAY_S
        channel.poll(*[item(f"{day}-{number}") for number in range(20)])
    assert len(channel.poll(*first)) == resent


def test_at_most_2000_entries_are_known() -> None:
    channel = Channel()
    for poll in range(8):
        channel.poll(*[item(f"{poll}-{number}") for number in range(300)])
    assert channel.state is not None
    assert len(channel.state.rows) == 2000 * ROW_BYTES


def test_a_document_without_a_known_entry_has_a_gap() -> None:
    def gap(state: FeedState | None, *names: str) -> bool:
        feed = ParsedFeed(entries=tuple(item(name) for name in names))
        return detect_entry_changes(state, feed, url=URL, now_s=NOW_S).gap

    state = detect_entry_changes(None, ParsedFeed(entries=(item("a"), item("b"))), url=URL, now_s=NOW_S).state
    assert gap(state, "d", "c")
    assert not gap(state, "c", "b")
    assert not gap(state)
    assert not gap(None, "a")
    assert not gap(FeedState(NOW_S), "a")


def test_entries_with_only_texts_are_known_after_they_gain_ids_and_links() -> None:
    channel = Channel()
    channel.poll(*[item(name, id="", link="") for name in "abc"])
    assert channel.poll(item("d"), *[item(name) for name in "abc"]) == ["Title d"]


def test_an_entry_with_the_text_of_a_listed_one_is_new() -> None:
    channel, old = Channel(), item("a", id="", link="", title="Backup", summary="Done.")
    channel.poll(old)
    assert channel.poll(item("b", title="Backup", summary="Done."), old) == ["Backup"]


def test_two_entries_that_match_one_known_entry_stay_that_entry() -> None:
    channel, old = Channel(), item("a", id="")
    parts = [item("a", id="", published=None), ParsedEntry(title=old.title, published=old.published)]
    channel.poll(old)
    assert [channel.poll(*parts), channel.poll(*parts)] == [[], []]


def test_an_entry_with_a_shared_id_is_known_after_it_loses_its_link() -> None:
    channel = Channel()
    with_links, without = [item("a", id="same"), item("b", id="same")], [item("a", id="same", link="")]
    assert [channel.poll(*document) for document in (with_links, without) * 3] == [[]] * 6


def test_the_state_is_at_most_66_kib() -> None:
    channel = Channel()
    for poll in range(5):
        channel.poll(*[item(f"{poll}-{number}") for number in range(500)])
    assert 64_000 < len(msgspec.msgpack.encode(channel.state)) <= 66 * 1024


@pytest.mark.parametrize(
    "encoded",
    [
        msgspec.msgpack.encode([NOW_S, bytes(60), [20_000, 20_000], 2, False]),  # version 0.1.0
        msgspec.msgpack.encode(["page", NOW_S]),
        msgspec.msgpack.encode(["feed", NOW_S, bytes(33)]),
        msgspec.msgpack.encode(["feed", NOW_S, bytes(32), bytes(10)]),
        msgspec.msgpack.encode(["feed", NOW_S, b"", b"", 0, False, -1, -1, bytes(4)]),
        b"\xc1",
    ],
)
def test_an_invalid_state_does_not_decode(encoded: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(encoded, type=FeedState)
