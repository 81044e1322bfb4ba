"""Mutes, filters and edit preferences: which changes of a subscription are suppressed."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from service.model import Change, Delta, Entry, Notice
from service.users.change_suppression import suppressed_positions
from service.users.filters import FilterRule, build_subjects, parse_rule
from service.users.numeric_conditions import NumericCondition
from service.users.preferences import (
    FOR_ALL,
    NO_PREFERENCES,
    Preferences,
    folder_number,
    has_filters,
)

CID = "c" * 40


def added(title: str, summary: str = "", tags: tuple[str, ...] = ()) -> Change:
    return Change("addition", Entry(title, title, "", summary, (), tags))


def deny(text: str) -> FilterRule:
    return parse_rule(text, allow=False)


def allow(text: str) -> FilterRule:
    return parse_rule(text, allow=True)


def suppressed(preferences: dict[int, Preferences], *versions: Delta, edits: bool = False) -> tuple[int, ...] | None:
    return suppressed_positions(
        preferences, 3, [(delta, build_subjects(delta.changes)) for delta in versions], edits=edits
    )


def version(*changes: Change, notice: Notice | None = None) -> Delta:
    return Delta(CID, 1, 2, 5.0, changes, notice=notice)


def test_suppressed_positions_are_numbered_across_all_versions() -> None:
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


def test_mutes_and_filters_of_a_folder_apply_to_its_subscriptions() -> None:
    delta = version(added("python"), added("crypto"))
    news = folder_number("News")
    mine = {3: Preferences(folder="news"), news: Preferences(folder="News", rules=(deny("crypto"),))}
    assert suppressed(mine, delta) == (1,)
    assert suppressed({**mine, 3: Preferences(folder="Other")}, delta) == ()
    assert suppressed({**mine, news: Preferences(folder="News", muted=True)}, delta) is None


def test_changes_of_a_page_that_do_not_meet_the_condition_are_suppressed() -> None:
    mine = {3: Preferences(when=NumericCondition("<", 20.0), rules=(deny("sold"),))}
    prices = ["25 €", "19 €", "18 €", "22 €", "17 € sold"]
    delta = version(
        *(
            Change("replacement", Entry(new, "Price", summary=new), 1, old)
            for old, new in itertools.pairwise(["30 €", *prices])
        )
    )
    assert has_filters(mine)
    assert suppressed(mine, delta) == (0, 2, 3, 4)
    assert suppressed(mine, version(delta.changes[0])) is None
    assert suppressed(mine, version(notice=Notice("dead", "It is gone."))) == ()


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
