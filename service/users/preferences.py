"""A user's preferences for notifications: mute, title, edits, template, text, images, filters, interval, condition.

A user has preferences for each subscription, stored under its number, for each folder, stored under
:func:`folder_number`, and for all subscriptions, stored under ``FOR_ALL``. The preferences for a folder apply to the
subscriptions that are in it at the time. They are combined as follows:

- Mutes and filters: a change is delivered only if the preferences for the subscription, those for its folder and those
  for all subscriptions allow it.
- Edits (whether edited entries are delivered), template, length of texts, images, interval and digest: the preference
  for the subscription overrides the one for its folder, which overrides the one for all subscriptions. For digests, the
  last one is the user's setting.

The names of folders are compared without regard to case.
"""

import hashlib
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from service.users.filters import FilterRule
from service.users.numeric_conditions import NumericCondition
from service.users.quiet_hours_and_digests import DigestSchedule

FOR_ALL: Final = 0
"""The number under which preferences for all subscriptions are stored."""
MIN_INTERVAL_S: Final = 60
MAX_INTERVAL_S: Final = 7 * 86_400
MAX_TEXT_CHARS: Final = 2_000
FULL_TEXT: Final = MAX_TEXT_CHARS + 1
"""Stands for the text of the article to which an entry links, or for the entry's own text if that was not read."""
DEFAULT_TEXT_CHARS: Final = 300
MAX_FOLDERS: Final = 100
"""Maximum number of folders of one user that have preferences."""


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user's preferences for one subscription, a folder, or all subscriptions; None: a preference is not set.

    - ``muted``: True if no entries are delivered.
    - ``title``: the user's own name for the channel; "" means the channel's own title.
    - ``edits``: whether edited entries are delivered.
    - ``template``: the text template for entries; "" means the default format.
    - ``proof``: how many of the latest entries are shown when a subscription begins.
    - ``interval_s``: the minimum time in seconds between two messages about the channel; 0 means no minimum.
    - ``rules``: the filter rules.
    - ``text_chars``: the maximum length of an entry's text, from 0 to ``MAX_TEXT_CHARS``, or ``FULL_TEXT``.
    - ``images``: whether the image of an entry is sent after a message with this entry alone.
    - ``when``: the condition on numbers that a change of a page has to meet. It is set for single subscriptions only.
    - ``folder``: the name of the folder that the subscription is in; "" if it is in none. In the preferences for a
      folder, it is the name of this folder.
    - ``digest``: when entries are sent as a digest; "off" if they are sent right away. It is not set for all.
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
    digest: DigestSchedule | Literal["off"] | None = None


NO_PREFERENCES: Final = Preferences()
_OVERRIDABLE: Final = ("edits", "template", "interval_s", "text_chars", "images", "digest")
DEFAULT_PROOF: Final = 1

PreferencesByNumber = Mapping[int, Preferences]
"""One user's preferences by subscription number; the number ``FOR_ALL`` stands for all subscriptions, and the result of
:func:`folder_number` for a folder. A number that is absent has no preferences (``NO_PREFERENCES``)."""


def folder_number(folder: str) -> int:
    """Return the number under which the preferences for a folder are stored: a negative number made from its name."""
    return ~int.from_bytes(hashlib.sha256(folder.casefold().encode()).digest()[:6])


def folders_of(preferences: PreferencesByNumber) -> dict[str, str]:
    """Return the user's folders that contain subscriptions or have preferences: case-folded names mapped to names."""
    found: dict[str, str] = {}
    for _, own in sorted(preferences.items(), key=lambda item: item[0]):
        if own.folder:
            found.setdefault(own.folder.casefold(), own.folder)
    return found


def preference_levels(preferences: PreferencesByNumber, number: int) -> tuple[Preferences, Preferences, Preferences]:
    """Return the preferences that apply to a subscription or folder: (its own, those for its folder, those for all)."""
    own = preferences.get(number, NO_PREFERENCES)
    is_in_folder = number > FOR_ALL and own.folder
    folder = preferences.get(folder_number(own.folder), NO_PREFERENCES) if is_in_folder else NO_PREFERENCES
    return own, folder, preferences.get(FOR_ALL, NO_PREFERENCES)


def inherited_preferences(preferences: PreferencesByNumber, number: int) -> Preferences:
    """Return what applies to a subscription where its own preferences are not set: those for its folder, or for all."""
    _, folder, general = preference_levels(preferences, number)
    values = {name: getattr(folder, name) for name in _OVERRIDABLE if getattr(folder, name) is not None}
    return msgspec.structs.replace(general, **values) if values else general


def is_muted(preferences: PreferencesByNumber, number: int) -> bool:
    """Return whether a subscription is muted: by itself, with its folder, or with all subscriptions."""
    return any(each.muted for each in preference_levels(preferences, number))


def effective_digest(
    preferences: PreferencesByNumber, number: int, default: DigestSchedule | None
) -> DigestSchedule | None:
    """Return the digest schedule for the subscription with this number; None if its entries are sent right away.

    ``default`` is the user's setting, which applies unless there is one for the subscription or for its folder.
    """
    own, general = _both(preferences, number)
    digest = own.digest or general.digest or default
    return None if digest == "off" else digest


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


def has_digests(preferences: PreferencesByNumber) -> bool:
    """Return whether any digest is set here, so that digests do not apply to all messages alike."""
    return any(each.digest is not None for each in preferences.values())


def _both(preferences: PreferencesByNumber, number: int) -> tuple[Preferences, Preferences]:
    return preferences.get(number, NO_PREFERENCES), inherited_preferences(preferences, number)
