"""The changes that a user's mutes, filters, numeric conditions and unwanted edits suppress."""

from collections.abc import Iterable, Sequence

from service.discovery.queries.saved_searches import SearchableEntry
from service.feeds.entries.version_parts import is_edit
from service.model import Delta
from service.users.filters import is_allowed
from service.users.numeric_conditions import is_met
from service.users.preferences import PreferencesByNumber, are_edits_enabled, preference_levels


def suppressed_positions(
    preferences: PreferencesByNumber,
    number: int,
    versions: Iterable[tuple[Delta, Sequence[SearchableEntry]]],
    *,
    edits: bool,
) -> tuple[int, ...] | None:
    """Return the positions of an item's changes that must not be delivered; None if no change may be delivered.

    The position of a change is its index among the changes of all ``versions``. Notices about the channel, for example
    that it has moved, are suppressed by mutes but not by filters or conditions.

    - ``preferences``: the preferences of the user to whom the item belongs.
    - ``number``: the number of the subscription that the item is for.
    - ``versions``: the versions of the channel that the item refers to. Each is a pair: the version's delta, and the
      texts that :func:`service.users.filters.build_subjects` returns for the delta's changes.
    - ``edits``: True if the item refers only to the edits among these changes; False if only to the other changes.
    """
    levels = preference_levels(preferences, number)
    if any(each.muted for each in levels) or (edits and not are_edits_enabled(preferences, number)):
        return None
    suppressed, has_content, first, when = [], False, 0, levels[0].when
    for delta, subjects in versions:
        has_content = has_content or delta.notice is not None
        for position, (change, subject) in enumerate(zip(delta.changes, subjects, strict=True), first):
            if is_edit(change) is not edits:
                continue
            if (when is None or is_met(when, change)) and all(is_allowed(each.rules, subject) for each in levels):
                has_content = True
            else:
                suppressed.append(position)
        first += len(delta.changes)
    return tuple(suppressed) if has_content or not suppressed else None
