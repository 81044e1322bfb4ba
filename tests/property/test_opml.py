"""Properties of the OPML parser and writer."""

from collections.abc import Iterable

from hypothesis import assume, given
from hypothesis import strategies as st

from service.feeds.opml_parser import parse
from service.feeds.opml_writer import OpmlSubscription, write
from service.feeds.parsing.html_text import one_line

texts = st.text(max_size=30).map(lambda text: one_line(text, 30))
feeds = st.lists(
    st.builds(
        OpmlSubscription,
        st.integers(0, 30).map(lambda number: f"https://example.org/{number}?a=1&b=<é>".replace("<é>", "%C3%A9")),
        texts,
        st.booleans(),
        texts,
    ),
    unique_by=lambda feed: feed.url,
    max_size=20,
)


def _in_any_order(listed: Iterable[OpmlSubscription]) -> dict[str, OpmlSubscription]:
    return {feed.url: feed for feed in listed}


@given(texts, feeds)
def test_written_opml_parses_to_the_same_subscriptions(title: str, subscribed: list[OpmlSubscription]) -> None:
    outline = parse(write(title, subscribed))
    assert outline.problems == ()
    assert _in_any_order(outline.feeds) == _in_any_order(subscribed)


@given(st.binary(max_size=2_000) | st.text(alphabet="<>/\"'= &;ab!-[]\n", max_size=300).map(str.encode))
def test_parsed_feeds_remain_whatever_text_follows(rest: bytes) -> None:
    body = b"<opml><outline xmlUrl='https://example.org/'/>" + rest
    assume(b"<!ENTITY" not in rest)
    assert parse(body).feeds[0].url == "https://example.org/"
