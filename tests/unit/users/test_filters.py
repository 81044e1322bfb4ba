"""Filters: conditions, and rules that allow and deny."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadQuery
from service.model import Change, Entry
from service.users.filters import FilterRule, build_subjects, format_condition, is_allowed, parse_rule

ADS = Entry(
    "a",
    "Summer sale",
    "https://ads.example.org/Summer?id=3",
    "Everything must go, free money included.",
    ("Jane Doe", "Ann"),
    ("Sponsored", "machine learning"),
)


def added(title: str, summary: str = "", tags: tuple[str, ...] = ()) -> Change:
    return Change("addition", Entry(title, title, "", summary, (), tags))


def deny(text: str) -> FilterRule:
    return parse_rule(text, allow=False)


def allow(text: str) -> FilterRule:
    return parse_rule(text, allow=True)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("crypto OR nft", ["Crypto crashes", "An NFT, of all things"], ["Cryptography for all", "Fees"]),
        ("crypto nft", ["An NFT made of crypto"], ["Crypto crashes", "An NFT, of all things"]),
        ("crypto OR nft art", ["Crypto art", "Art as NFT"], ["Crypto crashes", "Art"]),
        ("crypto -nft", ["Crypto crashes"], ["An NFT made of crypto", "Fees"]),
        ("-nft", ["Crypto crashes"], ["An NFT made of crypto"]),
        ('"open source"', ["On Open Source", "open-source tools"], ["An open letter on source code"]),
        ("/v[0-9]+\\.0/", ["Release V12.0"], ["Release v12.1"]),
        ("straße", ["Die Strasse", "STRASSE"], ["Stress"]),
        ("新闻", ["今天的新闻"], ["今天"]),
    ],
)
def test_a_condition_matches_as_in_a_search(text: str, matching: list[str], others: list[str]) -> None:
    rule = allow(text)
    allowed = [is_allowed([rule], subject) for subject in build_subjects(map(added, matching + others))]
    assert allowed == [True] * len(matching) + [False] * len(others)


@pytest.mark.parametrize(
    ("text", "is_match"),
    [
        ("title:summer", True),
        ("title:money", False),
        ('title:"summer sale"', True),
        ("titel:summer", True),
        ("author:jane", True),
        ('author:"jane doe"', True),
        ("author:john", False),
        ("jane", False),
        ("link:ADS.example.org/summer", True),
        ("link:other.example.org", False),
        ("lien:ads.example.org", True),
        ("tag:sponsored", True),
        ('tag:"machine learning"', True),
        ("tag:learning", False),
        ("text:money", True),
        ('text:"free money"', True),
        ('text:"money free"', False),
        ("text:mon", False),
        ("text:summer", False),
        ("text:sponsored", False),
        ("texto:money", True),
        ("money", True),
        ("sponsored", True),
        ("title:winter OR tag:sponsored", True),
        ("title:summer tag:sponsored", True),
        ("title:summer tag:news", False),
        ("title:summer -author:ann", False),
        ("title:summer -author:john", True),
        ("/sponsored/", True),
    ],
)
def test_fields_of_an_entry_are_examined(text: str, *, is_match: bool) -> None:
    (subject,) = build_subjects([Change("addition", ADS)])
    assert is_allowed([allow(text)], subject) is is_match
    assert is_allowed([deny(text)], subject) is not is_match


def test_filters_examine_summary_tags_and_the_previous_text_of_a_page() -> None:
    page = Change("replacement", Entry("p", summary="Plums 3.00"), line=4, before="Pears 1.99")
    subjects = build_subjects([added("A", summary="about crypto"), added("B", tags=("Crypto",)), page])
    assert [is_allowed([deny("crypto")], subject) for subject in subjects] == [False, False, True]
    assert not is_allowed([deny("pears")], subjects[2])
    assert not is_allowed([deny("text:pears")], subjects[2])


def test_a_deny_rule_overrides_allow_rules_and_one_allow_rule_suffices() -> None:
    rules = [allow("python"), allow("rust"), deny("jobs")]
    allowed = [
        is_allowed(rules, subject) for subject in build_subjects([added(t) for t in ("Rust 2", "Python jobs", "Go")])
    ]
    assert allowed == [True, False, False]


@pytest.mark.parametrize("text", ["", "   ", "!?", '""', "/(/", "/" + "a" * 300 + "/", "/.*/", "w", "//", "the"])
def test_an_invalid_condition_raises_an_explanation(text: str) -> None:
    words = " ".join(f"w{letter}x" for letter in "abcdefghijklmnopqrst") if text.startswith("w") else text
    with pytest.raises(BadQuery, match=r"\w"):
        parse_rule(words, allow=False)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a NOT b", "NOT"),
        ("site:example.org", "site:"),
        ("lang:en", "lang:"),
        ("after:3d", "after:"),
        ("foo:bar", "foo:"),
        ("(rust OR go) async", "Parentheses"),
        ("rust OR go AND async", "AND"),
        ("link:*.org", "link:"),
        ("text:!", "text"),
        ("rust~", "~"),
    ],
)
def test_an_unknown_operator_or_field_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(BadQuery) as refusal:
        parse_rule(text, allow=False)
    assert named in str(refusal.value)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ({"type": "words", "words": ["crypto", "nft"]}, "crypto OR nft"),
        ({"type": "phrase", "words": ["open", "source"]}, '"open source"'),
        ({"type": "pattern", "expression": "crypto|nft"}, "/crypto|nft/"),
    ],
)
def test_a_rule_without_its_text_keeps_its_meaning(stored: dict[str, object], shown: str) -> None:
    rule = msgspec.convert({"allow": False, "test": stored}, FilterRule)
    assert format_condition(rule) == shown
    for subject in build_subjects(map(added, ("Crypto crashes", "An NFT", "Open source", "Fees"))):
        assert is_allowed([rule], subject) == is_allowed([deny(shown)], subject)


@given(st.text(max_size=80))
def test_the_text_of_a_rule_parses_to_the_same_rule(text: str) -> None:
    try:
        rule = deny(text)
    except BadQuery:
        return
    assert deny(rule.text) == rule


@given(
    st.lists(st.sampled_from(["apple", "berry", "cherry", "date"]), max_size=6),
    st.sets(st.sampled_from(["apple", "berry", "cherry", "date"]), min_size=1),
)
def test_deny_and_allow_rules_of_the_same_words_are_complementary(titles: list[str], words: set[str]) -> None:
    text = " OR ".join(sorted(words))
    for subject in build_subjects(map(added, titles)):
        assert is_allowed([allow(text)], subject) != is_allowed([deny(text)], subject)
