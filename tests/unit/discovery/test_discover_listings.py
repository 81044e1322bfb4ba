"""Listings of popular and new channels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.discovery.discover_listings import (
    MAX_ATTRIBUTE_WEIGHT,
    NEW_S,
    DiscoverCandidate,
    Facet,
    arrange_listing,
    attribute_weights,
    discover_pairs,
    novelty_weight,
    popularity_weight,
)
from service.errors import BadQuery
from service.model import Channel


def listed(number: int, subscribers: int, *pairs: str, created_s: float = 0.0) -> DiscoverCandidate:
    channel = Channel(f"{number:040x}", f"https://{number}.example/", created_s=created_s)
    return DiscoverCandidate(channel, subscribers, frozenset({"status=ok", *pairs}))


CHANNELS = [
    listed(1, 5, "lang=de", "tag=python", created_s=30.0),
    listed(2, 9, "lang=en", "tag=python", "age=new", created_s=40.0),
    listed(3, 9, "lang=en", "age=new", created_s=50.0),
    listed(4, 7, "lang=en", created_s=20.0),
]


def test_popular_lists_the_channels_with_most_subscribers_first() -> None:
    answer = arrange_listing("popular", discover_pairs("popular"), reversed(CHANNELS), 3)
    assert [(int(hit.channel.id, 16), hit.subscribers) for hit in answer.hits] == [(2, 9), (3, 9), (4, 7)]
    assert answer.has_more
    assert answer.languages == (Facet("en", 3), Facet("de", 1))
    assert answer.topics == (Facet("python", 2),)


def test_new_lists_the_newest_channels_first() -> None:
    answer = arrange_listing("new", discover_pairs("new"), CHANNELS, 10)
    assert [int(hit.channel.id, 16) for hit in answer.hits] == [3, 2]
    assert not answer.has_more


def test_a_listing_of_a_language_and_topic_has_nothing_else() -> None:
    answer = arrange_listing("popular", discover_pairs("popular", "en-GB", "#Python"), CHANNELS, 10)
    assert not answer.hits, "nobody's language has the region"
    answer = arrange_listing("popular", discover_pairs("popular", "en", "#Python"), CHANNELS, 10)
    assert [int(hit.channel.id, 16) for hit in answer.hits] == [2]
    assert answer.languages == (Facet("en", 1),)


@pytest.mark.parametrize(("language", "topic"), [("Klingon", ""), ("", "\x00")])
def test_an_invalid_language_or_topic_is_refused(language: str, topic: str) -> None:
    with pytest.raises(BadQuery):
        discover_pairs("popular", language, topic)


@given(st.integers(-5, 10**12), st.integers(-5, 10**12))
def test_more_subscribers_never_weigh_less(one: int, other: int) -> None:
    weights = [popularity_weight(count) for count in sorted((one, other))]
    assert 1 <= weights[0] <= weights[1] <= MAX_ATTRIBUTE_WEIGHT


@given(st.floats(-1e9, 1e12), st.floats(-1e9, 1e12))
def test_newer_channels_never_weigh_less(one: float, other: float) -> None:
    weights = [novelty_weight(age_s) for age_s in sorted((one, other), reverse=True)]
    assert 0 <= weights[0] <= weights[1] <= MAX_ATTRIBUTE_WEIGHT
    assert bool(weights[0]) is (max(one, other) < NEW_S)


def test_attributes_weigh_by_subscribers_and_words_do_not() -> None:
    pairs = ("word=python", "lang=de", "age=new")
    few, many = (attribute_weights(pairs, subscribers, NEW_S / 2) for subscribers in (3, 3_000))
    assert few.keys() == {"lang=de", "age=new"}
    assert few["lang=de"] < many["lang=de"]
    assert few["age=new"] == many["age=new"]
