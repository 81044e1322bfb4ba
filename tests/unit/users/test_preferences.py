"""Preferences for one subscription and for all."""

from service.users.preferences import (
    FOR_ALL,
    Preferences,
    are_edits_enabled,
    effective_template,
)


def test_preferences_of_a_subscription_override_those_for_all() -> None:
    mine = {FOR_ALL: Preferences(edits=False, template="$title"), 3: Preferences(edits=True, template="")}
    assert (are_edits_enabled(mine, 3), effective_template(mine, 3)) == (True, "")
    assert (are_edits_enabled(mine, 4), effective_template(mine, 4)) == (False, "$title")
    assert (are_edits_enabled({}, 4), effective_template({}, 4)) == (True, "")
