"""The query language of find and watch: parsing, formatting and error messages."""

import pytest

from service.discovery.query_parser import MAX_QUERY_PAIRS, format_condition, parse_query, parse_watch
from service.discovery.saved_searches import PairsCondition, PatternCondition, PhraseCondition
from service.errors import BadQuery
from service.feeds.urls import channel_id


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (
            'tag=python lang=en host=example.org author="Jane Doe" limit 5',
            ("channel", ("author=jane doe", "host=example.org", "lang=en", "tag=python"), 5),
        ),
        ("  asyncio   Python\n", ("channel", ("word=asyncio", "word=python"), 10)),
        ("TAG=Python tag=PYTHON", ("channel", ("tag=python",), 10)),
        ("tag = python", ("channel", ("tag=python",), 10)),
        ("lang=en-GB", ("channel", ("lang=en", "region=gb of lang=en"), 10)),
        ("region=gb lang=en", ("channel", ("lang=en", "region=gb of lang=en"), 10)),
        (
            "version=6.4 generator=WordPress",
            ("channel", ("generator=wordpress", "version=6.4 of generator=wordpress"), 10),
        ),
        ("type=entry tag=x limit=50", ("entry", ("tag=x",), 50)),
        ("type=page the news", ("channel", ("type=page", "word=news"), 10)),
        ("“Jane Doe”", ("channel", ("word=doe", "word=jane"), 10)),
        ("host=Bücher.example tld=.Org", ("channel", ("host=xn--bcher-kva.example", "tld=org"), 10)),
        ("tag=#rust", ("channel", ("tag=rust",), 10)),
        (r'author="J. \"Jim\" \\ Doe"', ("channel", (r'author=j. "jim" \ doe',), 10)),
        ("版本发布", ("channel", ("word=发布", "word=本发", "word=版本"), 10)),
        ("language=de category=x", ("channel", ("lang=de", "tag=x"), 10)),
    ],
)
def test_a_query_is_a_set_of_pairs(text: str, query: tuple[str, tuple[str, ...], int]) -> None:
    parsed = parse_query(text)
    assert (parsed.about, parsed.pairs, parsed.limit) == query


def test_the_channel_attribute_accepts_any_form_of_the_url() -> None:
    cid = channel_id("https://example.org/feed")
    assert parse_query("type=entry channel=HTTPS://Example.org/feed?utm_source=x").pairs == (f"channel={cid}",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "What should I search for?"),
        ("the", "are too common"),
        ("limit 5", "What should I search for?"),
        ("colour=red", "no attribute “colour”. You can use tag, word, author, lang"),
        ("tga=x", "Did you mean “tag”?"),
        ('author="Jane', "quotation mark is missing"),
        ('tag="a"b', "don't understand"),
        ("tag=", "“tag=” needs a value"),
        ("=x", "an attribute before"),
        ('tag=""', "needs a value"),
        ("region=gb", "only works together with “lang”"),
        ("lang=klingon", "something like en, de, pt"),
        ("updates=often", "not one of hourly, daily, weekly"),
        ("lang=en lang=de", "several values of “lang”"),
        ("type=entry updates=daily", "only works for channels"),
        ("channel=https://example.org/", "only works for entries (add type=entry)"),
        ("word=the", "too many titles"),
        ("host=a_b..c", "not a host name"),
        ("tag=a limit 0", "from 1 to 50"),
        ("tag=a limit 5 limit=6", "more than one limit"),
        ("tag=a\x00b", "“tag=a?b” contains an invisible character"),
        ("tag=a\u202eb", "invisible character"),
        ("tag=" + "x" * 101, "101 characters; the maximum is 100"),
        ("tag=" + "x" * 2**20, "longer than 3,000 characters, the maximum"),
        (" ".join(f"tag={n}" for n in range(200)), "200 conditions; the maximum is 16"),
        (" ".join(f"tag={n}" for n in range(1000)), "the maximum"),
        (" ".join(f"t{n}" for n in range(500)), f"the maximum is {MAX_QUERY_PAIRS}"),
    ],
)
def test_an_invalid_query_raises_with_advice(text: str, words: str) -> None:
    with pytest.raises(BadQuery) as refused:
        parse_query(text)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("text", "standing"),
    [
        ("tag=python lang=en", PairsCondition(("lang=en", "tag=python"))),
        ("type=entry tag=x", PairsCondition(("tag=x",))),
        ('"The Quick  fox!"', PhraseCondition(("the", "quick", "fox"))),
        ('"one two" three', PairsCondition(("word=one", "word=three", "word=two"))),
        (r"/\bpy(thon)?\d\b/", PatternCondition(r"\bpy(thon)?\d\b")),
        (
            'author="J. \\"Jim\\" Doe" lang=pt-BR',
            PairsCondition(('author=j. "jim" doe', "lang=pt", "region=br of lang=pt")),
        ),
    ],
)
def test_a_condition_is_parsed_and_formatted(
    text: str, standing: PairsCondition | PhraseCondition | PatternCondition
) -> None:
    assert parse_watch(text) == standing
    assert parse_watch(format_condition(standing)) == standing


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "What should I search for?"),
        ('"of the"', "too common"),
        ('"' + "word " * 17 + '"', "at most 16"),
        ("/(/", "a closing parenthesis is missing"),
        (r"/(a)\1/", "invalid escape"),
        ("/(?=x)/", "invalid perl operator"),
        (r"/(\pL{1,40}){1,20}/", "too large"),
        ("/a{1,2000}/", "invalid repetition size"),
        ("/.*/", "matches any text"),
        ("/" + "x" * 201 + "/", "longer than 200"),
        ("/a\x00/", "invisible character"),
        ("tag=x limit=3", "with `find`"),
        ("updates=daily tag=x", "only works for channels"),
    ],
)
def test_an_invalid_condition_raises_with_advice(text: str, words: str) -> None:
    with pytest.raises(BadQuery) as refused:
        parse_watch(text)
    assert words in str(refused.value)
