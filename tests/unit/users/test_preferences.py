"""Filters, mutes and edits: what of a subscription's versions its person is not told."""

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


def left_out(preferences: dict[int, Preferences], *versions: Delta, edits: bool = False) -> tuple[int, ...] | None:
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
    ("text", "met", "missed"),
    [
        ("crypto nft", ["Crypto crashes", "An NFT, of all things"], ["Cryptography for all", "Fees"]),
        ('"open source"', ["On Open Source", "open-source tools"], ["An open letter on source code"]),
        ("/v[0-9]+\\.0/", ["Release V12.0"], ["Release v12.1"]),
        ("straße", ["Die Strasse", "STRASSE"], ["Strassen"]),
        ("新闻", ["今天的新闻"], ["今天"]),
    ],
)
def test_a_test_is_met_by_what_it_names(text: str, met: list[str], missed: list[str]) -> None:
    rule = allow(text)
    assert [is_allowed([rule], subject) for subject in build_subjects(map(added, met + missed))] == [True] * len(
        met
    ) + [False] * len(missed)


def test_text_tags_and_what_stood_on_a_page_before_are_looked_at_too() -> None:
    page = Change("replacement", Entry("p", summary="Plums 3.00"), line=4, before="Pears 1.99")
    seen = build_subjects([added("A", summary="about crypto"), added("B", tags=("Crypto",)), page])
    assert [is_allowed([deny("crypto")], subject) for subject in seen] == [False, False, True]
    assert not is_allowed([deny("pears")], seen[2])


def test_a_denial_counts_before_an_allowance_and_one_allowance_is_enough() -> None:
    rules = [allow("python"), allow("rust"), deny("jobs")]
    told = [
        is_allowed(rules, subject) for subject in build_subjects([added(t) for t in ("Rust 2", "Python jobs", "Go")])
    ]
    assert told == [True, False, False]


@pytest.mark.parametrize("text", ["", "   ", "!?", '""', "/(/", "/" + "a" * 300 + "/", "/.*/", "w", "//"])
def test_what_is_no_test_is_refused_in_words(text: str) -> None:
    words = " ".join(f"w{number}" for number in range(60)) if text.startswith("w") else text
    with pytest.raises(BadQuery, match=r"\w"):
        parse_condition(words)


@given(st.text(max_size=80))
def test_a_test_reads_as_it_is_written(text: str) -> None:
    try:
        test = parse_condition(text)
    except BadQuery:
        return
    assert parse_condition(format_condition(test)) == test


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6), st.sets(st.sampled_from("abcd"), min_size=1))
def test_denying_and_allowing_the_same_words_tell_each_change_exactly_once(titles: list[str], words: set[str]) -> None:
    test = AnyWord(tuple(sorted(words)))
    for subject in build_subjects(map(added, titles)):
        assert is_allowed([FilterRule(allow=True, test=test)], subject) != is_allowed(
            [FilterRule(allow=False, test=test)], subject
        )


def test_positions_are_counted_through_all_versions() -> None:
    mine = {3: Preferences(rules=(deny("bad"),))}
    assert left_out(mine, version(added("bad"), added("good")), version(added("bad one"))) == (0, 2)


def test_where_nothing_is_left_everything_is_withheld() -> None:
    mine = {3: Preferences(rules=(deny("bad"),))}
    assert left_out(mine, version(added("bad")), version(added("bad too"))) is None
    assert left_out(mine, version(added("good"))) == ()
    assert left_out(mine, version()) == ()


def test_notices_pass_filters_but_no_mute() -> None:
    notice = version(notice=Notice("dead", "It is gone."))
    assert left_out({3: Preferences(rules=(allow("python"),))}, notice) == ()
    assert left_out({3: Preferences(muted=True)}, notice) is None


def test_filters_for_all_and_for_one_subscription_both_have_to_let_pass() -> None:
    mine = {FOR_ALL: Preferences(rules=(deny("crypto"),)), 3: Preferences(rules=(allow("python"),))}
    told = version(added("python"), added("python crypto"), added("rust"))
    assert left_out(mine, told) == (1, 2)
    assert suppressed_positions(mine, 4, [(told, build_subjects(told.changes))], edits=False) == (1,)


def test_what_is_said_of_one_subscription_counts_before_what_is_said_for_all() -> None:
    mine = {FOR_ALL: Preferences(edits=False, template="$title"), 3: Preferences(edits=True, template="")}
    assert (are_edits_enabled(mine, 3), effective_template(mine, 3)) == (True, "")
    assert (are_edits_enabled(mine, 4), effective_template(mine, 4)) == (False, "$title")
    assert (are_edits_enabled({}, 4), effective_template({}, 4)) == (True, "")


def test_who_wants_no_edits_is_told_the_news_of_the_same_version() -> None:
    both = version(added("new"), Change("replacement", Entry("old", "old")))
    assert left_out({3: Preferences(edits=False)}, both) == ()
    assert left_out({3: Preferences(edits=False)}, both, edits=True) is None


@given(
    st.builds(Preferences, muted=st.booleans(), edits=st.sampled_from([None, True, False]))
    | st.builds(Preferences, rules=st.lists(st.sampled_from([deny("bad"), allow("good")]), max_size=2).map(tuple)),
    st.lists(st.sampled_from(["bad", "good", "bad good", "other"]).map(added), max_size=4),
)
def test_who_chooses_nothing_is_told_everything(own: Preferences, changes: list[Change]) -> None:
    for edits in (True, False):
        assert has_filters({3: own}) or left_out({3: own}, version(*changes), edits=edits) == ()
        assert left_out({3: NO_PREFERENCES}, version(*changes), edits=edits) == ()
