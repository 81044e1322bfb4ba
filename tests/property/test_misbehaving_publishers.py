"""Whatever publishers do to their feeds: each new article is delivered exactly once, and nothing else is."""

import re
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.feeds.identity import IdentityState, decide
from service.feeds.parse import parse
from service.model import Entry, ParsedFeed
from tests.support.publisher import HABITS, MISBEHAVIOUR, Publisher

URL = "https://example.com/feed"
START_S = 1_700_000_000.0
HOUR_S = 3600.0
_NUMBER = re.compile(r"articles/(\d+)|Article (\d+)")


class Reader:
    """A channel's identities over simulated time, and the numbers of the articles that it delivered."""

    def __init__(self) -> None:
        self.delivered: list[int] = []
        self._state: IdentityState | None = None

    def read(self, feed: ParsedFeed, now_s: float) -> None:
        decision = decide(self._state, feed, url=URL, now_s=now_s)
        self.delivered += numbers(decision.latest if self._state is None else decision.new)
        self._state = decision.state


def numbers(entries: Iterable[Entry]) -> list[int]:
    """Return the numbers of the articles, by where they lead or what they are called."""
    found = [_NUMBER.search(f"{entry.link} {entry.title}") for entry in entries]
    return [int(each[1] or each[2]) if each else -1 for each in found]


@settings(max_examples=40)
@given(
    st.sampled_from(HABITS),
    st.lists(st.tuples(st.sampled_from(list(MISBEHAVIOUR)), st.integers(0, 2)), max_size=16),
    st.integers(0, 2**32),
)
def test_documents_deliver_each_article_once(habit: str, polls: list[tuple[str, int]], seed: int) -> None:
    publisher, reader = Publisher(habit, seed), Reader()
    publisher.write(6)
    for hour, (misbehaviour, written) in enumerate([("nothing", 0), ("nothing", 0), *polls]):
        publisher.misbehave(misbehaviour)
        publisher.write(written)
        body, content_type = publisher.document()
        reader.read(parse(body, url=URL, headers={"content-type": content_type}), START_S + hour * HOUR_S)
        assert sorted(reader.delivered) == sorted(publisher.listed_ever)


@pytest.mark.parametrize("habit", HABITS)
def test_a_year_of_hourly_polls_delivers_each_article_once(habit: str) -> None:
    publisher, reader = Publisher(habit), Reader()
    chance = Random(2024)  # noqa: S311 - repeatable, not secret
    publisher.write(10)
    for hour in range(365 * 24):
        if hour > 1 and chance.random() > 1 / 20:
            continue  # it answers that nothing changed
        if hour > 1:
            publisher.write(chance.choice([0, 1, 1, 2]))
            publisher.misbehave(chance.choice(list(MISBEHAVIOUR)))
        reader.read(ParsedFeed(entries=tuple(publisher.listing())), START_S + hour * HOUR_S)
    assert len(reader.delivered) > 300
    assert sorted(reader.delivered) == sorted(publisher.listed_ever)
