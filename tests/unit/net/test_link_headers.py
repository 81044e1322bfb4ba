"""Hubs and topics in Link headers; other links are ignored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.net.link_headers import MAX_HUBS, HubLinks, parse_hub_links

BASE = "https://example.org/blog/feed"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("<https://hub.example/>; rel=hub", HubLinks(("https://hub.example/",))),
        ('<https://hub.example/>; rel="hub"', HubLinks(("https://hub.example/",))),
        ('</hub>;title="a, b; c";REL = "Next HUB"', HubLinks(("https://example.org/hub",))),
        ("<feed?p=1>; rel=self", HubLinks((), "https://example.org/blog/feed?p=1")),
        ('<https://a.example/>; rel="hub self"', HubLinks(("https://a.example/",), "https://a.example/")),
        ("<https://a.example/>;rel=hub,<https://b.example/>;rel=hub", HubLinks(("https://a.example/", "https://b.example/"))),
        ("<https://a.example/>; rel=hub, <https://a.example/>; rel=hub", HubLinks(("https://a.example/",))),
        ("<https://a.example/1>; rel=self, <https://a.example/2>; rel=self", HubLinks((), "https://a.example/1")),
        ("<https://a.example/>; rel=next; rel=hub", HubLinks()),
        ("<https://a.example/>; rel=hub; anchor=/other", HubLinks()),
        ("<https://a.example/>; rel=github", HubLinks()),
        ("<javascript:alert(1)>; rel=hub", HubLinks()),
        ("<https://u:p@a.example/>; rel=hub", HubLinks()),
        ("https://a.example/; rel=hub", HubLinks()),
        ("<https://a.example/; rel=hub", HubLinks()),
    ],
)  # fmt: skip
def test_hubs_and_topic_are_parsed(value: str, found: HubLinks) -> None:
    assert parse_hub_links([value], BASE) == found


def test_several_headers_are_combined() -> None:
    assert parse_hub_links(["<https://a.example/>; rel=hub", "<https://b.example/>; rel=self"], BASE) == HubLinks(
        ("https://a.example/",), "https://b.example/"
    )


def test_the_number_of_hubs_is_limited() -> None:
    many = [f"<https://hub{number}.example/>; rel=hub" for number in range(1000)]
    assert parse_hub_links(many, BASE).hubs == tuple(f"https://hub{number}.example/" for number in range(MAX_HUBS))


@given(st.lists(st.text(alphabet='<>;,="\\ \t:/ahrelubsnco\udcff', max_size=60), max_size=5))
def test_results_are_absolute_urls(values: list[str]) -> None:
    found = parse_hub_links(values, BASE)
    assert all(url.startswith(("http://", "https://")) for url in found.hubs)
    assert found.topic.startswith(("http://", "https://")) or not found.topic
