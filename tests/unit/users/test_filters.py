"""Filters: conditions, and rules that allow and deny."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadQuery
from service.model import Change, Entry
from service.users.filters import AnyWord, FilterRule, build_subjects, format_condition, is_allowed, parse_condition


def added(title: str, summary: str = "", tags: tuple[str, ...] = ()) -> Change:
    return Change("addition", Entry(title, title, "", summary, (), tags))


def deny(text: str) -> FilterRule:
    return FilterRule(allow=False, test=parse_condition(text))


def allow(text: str) -> FilterRule:
    return FilterRule(allow=True, test=parse_condition(text))


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("crypto nft", ["Crypto crashes", "An NFT, of all things"], ["Cryptography for all", "Fees"]),
        ('"open source"', ["On Open Source", "open-source tools"], ["An open letter on source code"]),
        ("/v[0-9]+\\.0/", ["Release V12.0"], ["Release v12.1"]),
        ("straße", ["Die Strasse", "STRASSE"], ["Strassen"]),
        ("新闻", ["今天的新闻"], ["今天"]),
    ],
)
def test_a_condition_matches_words_phrases_and_expressions(text: str, matching: list[str], others: list[str]) -> None:
    rule = allow(text)
    allowed = [is_allowed([rule], subject) for subject in build_subjects(map(added, matching + others))]
    assert allowed == [True] * len(matching) + [False] * len(others)


def test_filters_examine_summary_tags_and_the_previous_text_of_a_page() -> None:
    page = Change("replacement", Entry("p", summary="Plums 3.00"), line=4, before="Pears 1.99")
    subjects = build_subjects([added("A", summary="about crypto"), added("B", tags=("Crypto",)), page])
    assert [is_allowed([deny("crypto")], subject) for subject in subjects] == [False, False, True]
    assert not is_allowed([deny("pears")], subjects[2])


def test_a_deny_rule_overrides_allow_rules_and_one_allow_rule_suffices() -> None:
    rules = [allow("python"), allow("rust"), deny("jobs")]
    allowed = [
        is_allowed(rules, subject) for subject in build_subjects([added(t) for t in ("Rust 2", "Python jobs", "Go")])
    ]
    assert allowed == [True, False, False]


@pytest.mark.parametrize("text", ["", "   ", "!?", '""', "/(/", "/" + "a" * 300 + "/", "/.*/", "w", "//"])
def test_an_invalid_condition_raises_an_explanation(text: str) -> None:
    words = " ".join(f"w{number}" for number in range(60)) if text.startswith("w") else text
    with pytest.raises(BadQuery, match=r"\w"):
        parse_condition(words)


@given(st.text(max_size=80))
def test_a_formatted_condition_parses_to_the_same_condition(text: str) -> None:
    try:
        test = parse_condition(text)
    except BadQuery:
        return
    assert parse_condition(format_condition(test)) == test


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6), st.sets(st.sampled_from("abcd"), min_size=1))
def test_deny_and_allow_rules_of_the_same_words_are_complementary(titles: list[str], words: set[str]) -> None:
    test = AnyWord(tuple(sorted(words)))
    for subject in build_subjects(map(added, titles)):
        assert is_allowed([FilterRule(allow=True, test=test)], subject) != is_allowed(
            [FilterRule(allow=False, test=test)], subject
        )
