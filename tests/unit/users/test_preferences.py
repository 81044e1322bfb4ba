"""Mutes, filters and edit preferences: which changes of a subscription are suppressed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadQuery
from service.model import Change, Delta, Entry, Notice
from service.users.preferences import (
    FOR_ALL,
    NO_PREFERENCES,
    AnyWord,
    FilterRule,
    Preferences,
    are_edits_enabled,
    build_subjects,
    effective_template,
    format_condition,
    has_filters,
    is_allowed,
    parse_condition,
    suppressed_positions,
)

CID = "c" * 40


def added(title: str, summary: str = "", tags: tuple[str, ...] = ()) -> Change:
    return Change("addition", Entry(title, title, "", summary, (), tags))


def suppressed(preferences: dict[int, Preferences], *versions: Delta, edits: bool = False) -> tuple[int, ...] | None:
    return suppressed_positions(
        preferences, 3, [(delta, build_subjects(delta.changes)) for delta in versions], edits=edits
    )


def version(*changes: Change, notice: Notice | None = None) -> Delta:
    return Delta(CID, 1, 2, 5.0, changes, notice=notice)


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


def test_positions_count_through_all_versions() -> None:
    mine = {3: Preferences(rules=(deny("bad"),))}
    assert suppressed(mine, version(added("bad"), added("good")), version(added("bad one"))) == (0, 2)


def test_an_item_without_remaining_changes_is_suppressed_entirely() -> None:
    mine = {3: Preferences(rules=(deny("bad"),))}
    assert suppressed(mine, version(added("bad")), version(added("bad too"))) is None
    assert suppressed(mine, version(added("good"))) == ()
    assert suppressed(mine, version()) == ()


def test_notices_ignore_filters_but_not_mutes() -> None:
    notice = version(notice=Notice("dead", "It is gone."))
    assert suppressed({3: Preferences(rules=(allow("python"),))}, notice) == ()
    assert suppressed({3: Preferences(muted=True)}, notice) is None


def test_filters_for_all_and_for_one_subscription_must_both_allow() -> None:
    mine = {FOR_ALL: Preferences(rules=(deny("crypto"),)), 3: Preferences(rules=(allow("python"),))}
    delta = version(added("python"), added("python crypto"), added("rust"))
    assert suppressed(mine, delta) == (1, 2)
    assert suppressed_positions(mine, 4, [(delta, build_subjects(delta.changes))], edits=False) == (1,)


def test_preferences_of_a_subscription_override_those_for_all() -> None:
    mine = {FOR_ALL: Preferences(edits=False, template="$title"), 3: Preferences(edits=True, template="")}
    assert (are_edits_enabled(mine, 3), effective_template(mine, 3)) == (True, "")
    assert (are_edits_enabled(mine, 4), effective_template(mine, 4)) == (False, "$title")
    assert (are_edits_enabled({}, 4), effective_template({}, 4)) == (True, "")


def test_disabled_edits_do_not_suppress_new_entries_of_the_same_version() -> None:
    both = version(added("new"), Change("replacement", Entry("old", "old")))
    assert suppressed({3: Preferences(edits=False)}, both) == ()
    assert suppressed({3: Preferences(edits=False)}, both, edits=True) is None


@given(
    st.builds(Preferences, muted=st.booleans(), edits=st.sampled_from([None, True, False]))
    | st.builds(Preferences, rules=st.lists(st.sampled_from([deny("bad"), allow("good")]), max_size=2).map(tuple)),
    st.lists(st.sampled_from(["bad", "good", "bad good", "other"]).map(added), max_size=4),
)
def test_nothing_is_suppressed_without_filters(own: Preferences, changes: list[Change]) -> None:
    for edits in (True, False):
        assert has_filters({3: own}) or suppressed({3: own}, version(*changes), edits=edits) == ()
        assert suppressed({3: NO_PREFERENCES}, version(*changes), edits=edits) == ()
