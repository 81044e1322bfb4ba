"""Misbehaving publishers: each new article and each edit is reported once, and nothing else is."""

import re
from collections.abc import Iterable
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.feeds.entries.entry_change_detection import FeedState, detect_entry_changes
from service.feeds.parsing.format_detection import parse
from service.model import Entry, ParsedFeed
from tests.support.misbehaving_publisher import HABITS, MISBEHAVIOUR, Publisher

URL = "https://example.com/feed"
START_S = 1_700_000_000.0
HOUR_S = 3600.0
HOURS_A_MONTH = 730
_NUMBER = re.compile(r"articles/(\d+)|article (\d+)", re.IGNORECASE)


class Reader:
    """A channel's identity state over simulated time."""

    def __init__(self) -> None:
        self._memory = b""

    def poll(self, feed: ParsedFeed, now_s: float) -> tuple[list[int], list[int]]:
        """Return the numbers of the new and of the edited articles, in order."""
        state = msgspec.msgpack.decode(self._memory, type=FeedState) if self._memory else None
        detected = detect_entry_changes(state, feed, url=URL, now_s=now_s)
        self._memory = msgspec.msgpack.encode(detected.state)
        return numbers((*detected.new, *detected.latest)), numbers(detected.edited)


def numbers(entries: Iterable[Entry]) -> list[int]:
    """Return the numbers of the articles by their links or titles."""
    found = [_NUMBER.search(f"{entry.link} {entry.title}") for entry in entries]
    return sorted(int(each[1] or each[2]) if each else -1 for each in found)


@settings(max_examples=40)
@given(
    st.sampled_from(HABITS),
    st.lists(st.tuples(st.sampled_from(list(MISBEHAVIOUR)), st.integers(0, 2)), max_size=16),
    st.integers(0, 2**32),
)
def test_each_article_and_each_edit_is_reported_once(habit: str, polls: list[tuple[str, int]], seed: int) -> None:
    publisher, reader = Publisher(habit, seed), Reader()
    publisher.write(6)
    for hour, (misbehaviour, written) in enumerate([("nothing", 0), ("nothing", 0), *polls]):
        publisher.misbehave(misbehaviour)
        publisher.write(written)
        body, content_type = publisher.document()
        feed = parse(body, url=URL, headers={"content-type": content_type})
        assert reader.poll(feed, START_S + hour * HOUR_S) == (publisher.news, publisher.corrections)


@pytest.mark.parametrize("habit", HABITS)
def test_each_article_and_edit_is_reported_once_in_a_year_of_hourly_polls(habit: str) -> None:
    publisher, reader = Publisher(habit), Reader()
    chance = Random(2024)  # noqa: S311 - repeatable, not secret
    publisher.write(10)
    told = corrected = 0
    for hour in range(12 * HOURS_A_MONTH):
        if hour > 1 and chance.random() > 1 / 20:
            continue  # it answers that nothing changed
        if hour > 1:
            publisher.write(chance.choice([0, 1, 1, 2]))
            publisher.misbehave(chance.choice(list(MISBEHAVIOUR)))
        feed = ParsedFeed(entries=tuple(publisher.listing()))
        assert reader.poll(feed, START_S + hour * HOUR_S) == (publisher.news, publisher.corrections)
        told, corrected = told + len(publisher.news), corrected + len(publisher.corrections)
    assert told > 300
    assert corrected > 10 or habit == "text only"


@pytest.mark.parametrize("seed", range(6))
def test_each_article_and_edit_is_reported_once_in_a_year_of_all_misbehaviour(seed: int) -> None:
    """Each month the publisher generates ids in another way, and misbehaves in another one."""
    chance = Random(seed)  # noqa: S311 - repeatable, not secret
    habits = chance.sample(HABITS * 2, 12)
    favourites = chance.sample(list(MISBEHAVIOUR), len(MISBEHAVIOUR))
    publisher, reader = Publisher(habits[0], seed), Reader()
    publisher.write(10)
    for hour in range(0, 12 * HOURS_A_MONTH, 24):
        month = hour // HOURS_A_MONTH
        publisher.write(chance.choice([0, 1, 1, 2]) if hour > HOUR_S else 0)
        if publisher.habit != habits[month]:
            publisher.habit = habits[month]
        else:
            publisher.misbehave(chance.choice([favourites[month % len(favourites)], *MISBEHAVIOUR]))
        feed = ParsedFeed(entries=tuple(publisher.listing()))
        assert reader.poll(feed, START_S + hour * HOUR_S) == (publisher.news, publisher.corrections)
