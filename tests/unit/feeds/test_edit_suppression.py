"""Edits are reported, automatic changes are not, and no channel floods subscribers with corrections."""

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from service.feeds.entries.edit_suppression import MAX_EDITS_PER_POLL
from service.feeds.entries.entry_change_detection import FeedState, detect_entry_changes
from service.model import ParsedEntry, ParsedFeed
from tests.support.feed_documents import item

URL = "https://example.com/feed"
START_S = 1_700_000_000.0
DAY_S = 86_400.0
_HOURS_APART = 6
_WORDS = ("apples", "pears", "plums", "cherries", "quinces", "grapes")


class Channel:
    """A channel that is polled repeatedly."""

    def __init__(self, *entries: ParsedEntry) -> None:
        self.state: FeedState | None = None
        self.now_s = START_S
        self.poll(*entries)

    def poll(self, *entries: ParsedEntry) -> list[tuple[str, str]]:
        """Return the titles and texts of the edited entries, oldest first; no entry may be new."""
        known = self.state is not None
        detected = detect_entry_changes(self.state, ParsedFeed(entries=entries), url=URL, now_s=self.now_s)
        self.state = detected.state
        assert not known or not detected.new
        return [(entry.title, entry.summary) for entry in detected.edited]


def several(count: int = 6, **fields: str) -> list[ParsedEntry]:
    return [item(str(number), number=number, **fields) for number in range(count)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"title": "Three dead"}, {"title": "Five dead"}),
        ({"title": "3 dead"}, {"title": "5 dead"}),
        ({"summary": "He died in Paris."}, {"summary": "He died in London."}),
        ({"content": "<p>It rains.</p>"}, {"content": "<p>It does not rain.</p>"}),
        ({"summary": "今日は3人が来た。"}, {"summary": "今日は3人が帰った。"}),
    ],
)
def test_a_changed_title_or_text_is_an_edit_reported_once(before: dict[str, str], after: dict[str, str]) -> None:
    channel, others = Channel(replace(item("a"), **before), *several()), several()
    assert len(channel.poll(replace(item("a"), **after), *others)) == 1
    assert channel.poll(replace(item("a"), **after), *others) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"title": "Some  News"}, {"title": " Some news\n"}),
        ({"summary": "Some news"}, {"summary": "<p>some\n<b>NEWS</b></p>"}),
        ({"summary": "“Some” news\u2014at last…now"}, {"summary": "&quot;Some&quot; news - at last, now"}),
        ({"summary": "News<img src='/1.gif?sig=a8f'>"}, {"summary": "News<img src='/1.gif?sig=77c'>"}),
        ({"summary": "News https://e.com/?utm_source=rss"}, {"summary": "News https://e.com/?utm_source=atom"}),
        ({"summary": "Points: 12, comments: 3"}, {"summary": "Points: 1,204, comments: 77"}),
        ({"summary": "News at 12:30, ref=00a8f3e2"}, {"summary": "News at 13:45, ref=9b7cc1d0"}),
        ({"summary": "A long story that goes on"}, {"summary": "A long story that…"}),
        ({"summary": "A long story [...]"}, {"summary": "A long story that goes [...]"}),
        ({"title": "A long title that goes on"}, {"title": "A long title..."}),
        ({"summary": ""}, {"summary": "There is a text by now."}),
        ({"published": 1.6e9, "updated": 1.6e9}, {"published": 1.6e9, "updated": 1.7e9}),
        ({"link": "http://www.example.com/a"}, {"link": "https://example.com/a?utm_medium=feed"}),
        ({"tags": ("news",)}, {"tags": ("news", "local")}),
    ],
)
def test_meaningless_changes_are_no_edits(before: dict[str, str], after: dict[str, str]) -> None:
    assert Channel(replace(item("a"), **before), *several()).poll(replace(item("a"), **after), *several()) == []


def test_an_edit_and_its_revert_are_two_edits() -> None:
    channel = Channel(item("a"), *several())
    reported = [channel.poll(item("a", title=title), *several()) for title in ("Corrected", "Title a", "Title a")]
    assert [[title for title, _ in each] for each in reported] == [["Corrected"], ["Title a"], []]


def test_edits_are_oldest_first_with_the_keys_of_their_entries() -> None:
    entries = several()
    first = detect_entry_changes(None, ParsedFeed(entries=tuple(entries)), url=URL, now_s=START_S)
    entries[1:3] = [item("1", number=1, title="B"), item("2", number=2, summary="c")]
    edited = detect_entry_changes(first.state, ParsedFeed(entries=tuple(entries[::-1])), url=URL, now_s=START_S).edited
    keys = {entry.title: entry.key for entry in first.latest}
    assert [(entry.key, entry.title) for entry in edited] == [(keys["Title 1"], "B"), (keys["Title 2"], "Title 2")]


def test_at_most_three_edits_of_a_text_are_reported_and_edits_of_titles_besides() -> None:
    channel = Channel(item("a"), *several(20))
    reported = [channel.poll(item("a", summary=f"About {word}."), *several(20)) for word in _WORDS]
    assert [len(each) for each in reported] == [1, 1, 1, 0, 0, 0]
    assert len(channel.poll(item("a", title="Corrected", summary="About grapes."), *several(20))) == 1


def test_a_new_template_starts_a_quiet_period_of_thirty_days() -> None:
    channel, new = Channel(*several()), several(summary="All is new.")
    assert channel.poll(*new) == []
    edited = [item("0", summary="All is newer."), *new[1:]]
    channel.now_s += 29 * DAY_S
    assert channel.poll(*edited) == []
    channel.now_s += 31 * DAY_S
    assert len(channel.poll(*new)) == 1


def test_edits_of_titles_are_reported_in_a_quiet_period_of_texts() -> None:
    channel = Channel(*several())
    assert channel.poll(*several(summary="All is new.")) == []
    assert (
        len(channel.poll(item("0", title="Corrected", summary="All is new."), *several(summary="All is new.")[1:])) == 1
    )


def test_more_than_ten_edits_in_a_poll_are_not_reported() -> None:
    entries = several(40)
    for count, reported in ((MAX_EDITS_PER_POLL, MAX_EDITS_PER_POLL), (MAX_EDITS_PER_POLL + 1, 0)):
        edited = [*(item(str(number), summary="Edited.") for number in range(20, 20 + count)), *entries[20 + count :]]
        assert len(Channel(*entries).poll(*entries[:20], *edited)) == reported


def relative_date(number: int, hour: int, _: Random) -> str:
    """Return a relative date in words, without numbers."""
    limits = ((1, "just now"), (2, "an hour ago"), (24, "hours ago"), (48, "a day ago"), (168, "days ago"))
    hours = hour - _HOURS_APART * number
    return next((words for limit, words in limits if hours < limit), "long ago")


def advertisement(_number: int, _hour: int, chance: Random) -> str:
    return f"Buy {chance.choice(_WORDS)}."


def rare_advertisement(number: int, hour: int, _: Random) -> str:
    """Return a text that changes every three hours, or none for one entry of three."""
    return f"Buy {_WORDS[(hour // 3 + number) % len(_WORDS)]}." if number % 3 else ""


def counter(_number: int, _hour: int, chance: Random) -> str:
    return f"{chance.randrange(100)} comments"


@pytest.mark.parametrize("size", [1, 2, 20])
@pytest.mark.parametrize("aside", [relative_date, advertisement, rare_advertisement, counter])
def test_automatic_changes_of_texts_soon_start_a_quiet_period(
    aside: Callable[[int, int, Random], str], size: int
) -> None:
    chance = Random(1)  # noqa: S311 - repeatable, not secret
    state, reported = None, 0
    for hour in range(20 * 24):
        newest = hour // _HOURS_APART
        numbers = range(newest, max(-1, newest - size), -1)
        entries = [
            item(str(each), number=each, summary=f"News {each}. {aside(each, hour, chance)}") for each in numbers
        ]
        detected = detect_entry_changes(
            state, ParsedFeed(entries=tuple(entries)), url=URL, now_s=START_S + hour * DAY_S / 24
        )
        state, reported = detected.state, reported + len(detected.edited)
    assert reported <= 9
