"""Descriptions of channels, by which searches find them."""

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from service.discovery.channel_description import describe_channel, text_of_named_channel
from service.discovery.queries.query_parser import parse_query
from service.discovery.text_search.query_expansion import MatchKind, expand
from service.discovery.text_search.vocabulary import Vocabulary
from service.model import Channel, FeedMetadata

WORDS = st.sampled_from([*(f"w{number:02}" for number in range(90)), "cries", "volcanoes", "läuft", "node.js", "日本"])


@given(st.lists(WORDS, max_size=90), st.lists(WORDS, max_size=8))
def test_a_channel_has_each_word_of_its_title_and_tags_and_no_others(title: list[str], tags: list[str]) -> None:
    channel = Channel("c" * 40, "https://example.org/feed", " ".join(title), language="en")
    described = describe_channel(channel, (), FeedMetadata(tuple(tags)), "example.org", 86_400.0, now_s=0.0)
    pairs = frozenset(described.pairs)
    text = text_of_named_channel(channel, pairs, lambda _: "example.org")
    for word in ("w99", "flies", *title, *tags[:4]):
        has_word = word in (*title, *tags)
        query = expand(parse_query(word, dt.date(2026, 11, 1)), Vocabulary())
        assert query.match(text, pairs) is (MatchKind.ALL_WORDS if has_word else MatchKind.NONE)
