"""A user's preferences for notifications: mute, title, edits, template, text, images, filters, interval, condition.

A user has preferences for each subscription, stored under its number, and preferences for all subscriptions, stored
under ``FOR_ALL``. They are combined as follows:

- Mutes and filters: a change is delivered only if both the preferences for the subscription and those for all
  subscriptions allow it.
- Edits (whether edited entries are delivered), template, length of texts, images and interval: the preference for the
  subscription overrides the preference for all subscriptions.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.users.filters import FilterRule
from service.users.numeric_conditions import NumericCondition

FOR_ALL: Final = 0
"""The number under which preferences for all subscriptions are stored."""
MIN_INTERVAL_S: Final = 60
MAX_INTERVAL_S: Final = 7 * 86_400
MAX_TEXT_CHARS: Final = 2_000
DEFAULT_TEXT_CHARS: Final = 300


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user's preferences for one subscription, or for all subscriptions; None means that a preference is not set.

    - ``muted``: True if no entries are delivered.
    - ``title``: the user's own name for the channel; "" means the channel's own title.
    - ``edits``: whether edited entries are delivered.
    - ``template``: the text template for entries; "" means the default format.
    - ``proof``: how many of the latest entries are shown when a subscription begins.
    - ``interval_s``: the minimum time in seconds between two messages about the channel; 0 means no minimum.
    - ``rules``: the filter rules.
    - ``text_chars``: the maximum length of an entry's text in messages, from 0 to ``MAX_TEXT_CHARS``.
    - ``images``: whether the image of an entry is sent after a message with this entry alone.
    - ``when``: the condition on numbers that a change of a page has to meet. It is set for single subscriptions only.
    - ``folder``: the name of the folder that the subscription is in; "" if it is in none.
    """

    muted: bool = False
    title: str = ""
    edits: bool | None = None
    template: str | None = None
    proof: int | None = None
    interval_s: int | None = None
    rules: tuple[FilterRule, ...] = ()
    text_chars: int | None = None
    images: bool | None = None
    when: NumericCondition | None = None
    folder: str = ""


NO_PREFERENCES: Final = Preferences()
DEFAULT_PROOF: Final = 1

PreferencesByNumber = Mapping[int, Preferences]
"""One user's preferences by subscription number; the number ``FOR_ALL`` stands for all subscriptions. A number that is
absent has no preferences (``NO_PREFERENCES``)."""


def are_edits_enabled(preferences: PreferencesByNumber, number: int) -> bool:
    """Return whether edited entries are delivered for the subscription with this number (default: True)."""
    own, general = _both(preferences, number)
    if own.edits is not None:
        return own.edits
    return True if general.edits is None else general.edits


def effective_template(preferences: PreferencesByNumber, number: int) -> str:
    """Return the text template for entries of the subscription with this number; "" means the default format."""
    own, general = _both(preferences, number)
    return (own.template if own.template is not None else general.template) or ""


def effective_interval_s(preferences: PreferencesByNumber, number: int) -> int:
    """Return the minimum time in seconds between messages of the subscription with this number; 0 means no minimum."""
    own, general = _both(preferences, number)
    return (own.interval_s if own.interval_s is not None else general.interval_s) or 0


def effective_text_chars(preferences: PreferencesByNumber, number: int) -> int:
    """Return the maximum length of entries' texts in messages of the subscription with this number (default: 300)."""
    own, general = _both(preferences, number)
    chosen = own.text_chars if own.text_chars is not None else general.text_chars
    return DEFAULT_TEXT_CHARS if chosen is None else chosen


def are_images_enabled(preferences: PreferencesByNumber, number: int) -> bool:
    """Return whether entries' images are sent for the subscription with this number (default: False)."""
    own, general = _both(preferences, number)
    return bool(own.images if own.images is not None else general.images)


def has_filters(preferences: PreferencesByNumber) -> bool:
    """Return whether any of these preferences can suppress changes.

    These are mutes, filter rules, numeric conditions, and the exclusion of edits.
    """
    return any(each.muted or each.rules or each.when or each.edits is False for each in preferences.values())


def has_intervals(preferences: PreferencesByNumber) -> bool:
    """Return whether any of these preferences sets a minimum time between messages."""
    return any(each.interval_s for each in preferences.values())


def _both(preferences: PreferencesByNumber, number: int) -> tuple[Preferences, Preferences]:
    return preferences.get(number, NO_PREFERENCES), preferences.get(FOR_ALL, NO_PREFERENCES)
