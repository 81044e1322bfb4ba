"""Content names of channels and entries, from arbitrary input of publishers."""

from datetime import date

import pytest

from service.discovery.content_names import (
    MAX_PAIRS,
    DeclaredMetadata,
    channel_pairs,
    entry_pairs,
    language_pairs,
    update_class,
)
from service.discovery.queries.query_parser import parse_query
from service.discovery.text_search.query_expansion import expand
from service.discovery.text_search.vocabulary import Vocabulary
from service.model import Channel, Entry

DAY_S = 86_400.0
BLOG = Channel("c" * 40, "https://blog.example.co.uk/feed", "The Würzburg Python Blog", "https://blog.example.co.uk/")
METADATA = DeclaredMetadata("en-GB", ("Python", "Async IO"), ("Jane Doe",), "WordPress 6.4.2")


def test_a_channels_name_has_pairs_for_type_location_and_topic() -> None:
    assert set(channel_pairs(BLOG, METADATA, "example.co.uk", DAY_S)) == {
        *("type=feed", "status=ok", "updates=daily"),
        *("host=blog.example.co.uk", "domain=example.co.uk", "tld=uk"),
        *("lang=en", "region=gb of lang=en", "generator=wordpress", "version=6.4.2 of generator=wordpress"),
        *("tag=python", "tag=async io", "author=jane doe", "word=wurzburg", "word=python", "word=blog"),
        *("word=exampl", "word=async", "word=io", "word=jane", "word=doe"),
    }


def test_an_entrys_name_includes_its_channels_location() -> None:
    entry = Entry("1", "Async without tears", authors=("Jim",), tags=("#Python", ""))
    assert set(entry_pairs(entry, BLOG, METADATA, "example.co.uk")) == {
        *(f"channel={BLOG.id}", "host=blog.example.co.uk", "domain=example.co.uk", "tld=uk"),
        *("lang=en", "region=gb of lang=en", "tag=python", "author=jim"),
        *("word=async", "word=without", "word=tear", "word=python", "word=jim"),
    }
    assert "author=jane doe" in entry_pairs(Entry("2", "x"), BLOG, METADATA, "example.co.uk")


@pytest.mark.parametrize(
    "text",
    ["tag=python lang=en-gb", 'author="jane doe" python', "host=blog.example.co.uk updates=daily status=ok type=feed"],
)
def test_queries_match_the_name(text: str) -> None:
    expanded = expand(parse_query(text, date(2026, 11, 1)), Vocabulary())
    name = channel_pairs(BLOG, METADATA, "example.co.uk", DAY_S).keys()
    assert all(any(each.pair in name for each in clause.alternatives) for clause in expanded.clauses)


@pytest.mark.parametrize(
    ("tag", "pairs"),
    [
        ("en", ["lang=en"]),
        ("EN_us", ["lang=en", "region=us of lang=en"]),
        ("zh-Hans-CN", ["lang=zh", "region=cn of lang=zh"]),
        ("sr-Latn", ["lang=sr"]),
        ("english", []),
        ("", []),
        ("-", []),
        ("d\x00e", []),
    ],
)
def test_a_language_tag_gives_a_language_and_a_dependent_region(tag: str, pairs: list[str]) -> None:
    assert language_pairs(tag) == pairs


@pytest.mark.parametrize(
    ("generator", "pairs"),
    [
        ("https://wordpress.org/?v=6.4.2", ["generator=wordpress", "version=6.4.2 of generator=wordpress"]),
        ("Hugo -- gohugo.io", ["generator=hugo -- gohugo.io"]),
        ("Jekyll v4.3.2", ["generator=jekyll", "version=4.3.2 of generator=jekyll"]),
        ("7", []),
        ("", []),
        ("x" * 10_000, []),
    ],
)
def test_a_generator_gives_a_name_and_a_dependent_version(generator: str, pairs: list[str]) -> None:
    found = channel_pairs(
        Channel("c" * 40, "https://a.example/"), DeclaredMetadata(generator=generator), "a.example", DAY_S
    )
    assert [pair for pair in found if pair.startswith(("generator", "version"))] == pairs


def test_update_intervals_are_classified() -> None:
    assert [update_class(s) for s in (10.0, 3600.0, DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S)] == [
        *("hourly", "hourly", "daily", "weekly", "monthly", "rarely"),
    ]


def test_a_name_is_bounded_for_any_input() -> None:
    many = (*(f"t{n}" for n in range(1000)), "", "\x00", "x" * 10**6, "﷽" * 100)
    traits = DeclaredMetadata("x" * 10**6, many, many, "\x00" * 10**6)
    entry = Entry("1", "word " * 10**5 + "\x00" + "﷽" * 1000, tags=many, authors=many)
    for pairs in (
        channel_pairs(Channel("c" * 40, "https://a.example/", "\x00" * 10**6), traits, "a.example", 0.0),
        entry_pairs(entry, BLOG, traits, "example.co.uk"),
    ):
        assert len(pairs) <= MAX_PAIRS
        assert max(map(len, pairs)) <= 250
        assert all(pair.isprintable() for pair in pairs)


def test_a_value_cannot_imitate_another_pair() -> None:
    names = [
        frozenset(channel_pairs(BLOG, DeclaredMetadata(generator=text), "example.co.uk", DAY_S))
        for text in ("wordpress of lang=en", "wordpress 6 of generator=x")
    ]
    asked = parse_query("generator=wordpress version=6", date(2026, 11, 1)).attributes
    assert not any(set(asked) <= set(name) and "generator=wordpress" not in name for name in names)
