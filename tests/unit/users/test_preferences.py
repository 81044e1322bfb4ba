"""Preferences for one subscription, for a folder and for all."""

from service.users.preferences import (
    FOR_ALL,
    Preferences,
    are_edits_enabled,
    effective_digest,
    effective_interval_s,
    effective_template,
    folder_number,
    folders_of,
    has_digests,
    inherited_preferences,
    is_muted,
)
from service.users.quiet_hours_and_digests import DigestSchedule

NEWS = folder_number("News")
HOURLY, DAILY = DigestSchedule("hour"), DigestSchedule("day")


def test_preferences_of_a_subscription_override_those_for_all() -> None:
    mine = {FOR_ALL: Preferences(edits=False, template="$title"), 3: Preferences(edits=True, template="")}
    assert (are_edits_enabled(mine, 3), effective_template(mine, 3)) == (True, "")
    assert (are_edits_enabled(mine, 4), effective_template(mine, 4)) == (False, "$title")
    assert (are_edits_enabled({}, 4), effective_template({}, 4)) == (True, "")


def test_preferences_of_a_folder_override_those_for_all_and_yield_to_those_of_a_subscription() -> None:
    mine = {
        FOR_ALL: Preferences(edits=True, interval_s=60, template="$title"),
        NEWS: Preferences(folder="News", edits=False, interval_s=0),
        3: Preferences(folder="NEWS", interval_s=120),
        4: Preferences(folder="news"),
        5: Preferences(folder="Other"),
    }
    assert [are_edits_enabled(mine, number) for number in (3, 4, 5, 6)] == [False, False, True, True]
    assert [effective_interval_s(mine, number) for number in (3, 4, 5, 6)] == [120, 0, 60, 60]
    assert effective_template(mine, 4) == "$title"
    assert inherited_preferences(mine, 3) == Preferences(edits=False, interval_s=0, template="$title")
    assert inherited_preferences(mine, NEWS) == mine[FOR_ALL]


def test_a_subscription_is_muted_by_itself_its_folder_or_all() -> None:
    mine = {3: Preferences(folder="News"), 4: Preferences(muted=True)}
    assert [is_muted(mine, number) for number in (3, 4, 5)] == [False, True, False]
    assert is_muted({**mine, NEWS: Preferences(folder="News", muted=True)}, 3)
    assert is_muted({**mine, FOR_ALL: Preferences(muted=True)}, 5)


def test_the_digest_of_a_folder_overrides_the_setting_of_the_user() -> None:
    mine = {
        NEWS: Preferences(folder="News", digest=HOURLY),
        2: Preferences(folder="News", digest="off"),
        3: Preferences(folder="News"),
    }
    assert [effective_digest(mine, number, DAILY) for number in (2, 3, 4, FOR_ALL)] == [None, HOURLY, DAILY, DAILY]
    assert has_digests(mine)
    assert not has_digests({3: mine[3]})


def test_folders_are_those_of_subscriptions_and_those_with_preferences_whatever_their_case() -> None:
    mine = {7: Preferences(folder="news"), 3: Preferences(folder="News"), 4: Preferences(title="x")}
    assert folders_of(mine) == {"news": "News"}
    empty = Preferences(folder="Straße", muted=True)
    assert folders_of({folder_number("STRASSE"): empty}) == {"strasse": "Straße"}
    assert folder_number("STRASSE") == folder_number("Straße") < FOR_ALL
    assert folder_number("News") != folder_number("Blogs")
