"""What a person wants to be told of a channel, and how: mutes, titles, edits, templates, filters, intervals. Pure.

Each subscription has preferences of its own, by its number, and there are those for all (``FOR_ALL``). Both have to let
a change pass; what is said of one subscription's edits and template counts before what is said for all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from service.discovery.standing import Subject
from service.feeds.parts import is_edit
from service.filters import Rule, passes
from service.model import Delta

FOR_ALL: Final = 0
"""Stands in the place of a subscription's number."""
LEAST_INTERVAL_S: Final = 60
MOST_INTERVAL_S: Final = 7 * 86_400
DIGEST_TAKES_S: Final = 600
"""How late a digest's message may be: the next one is not to wait a whole round for that."""


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one person wants of one subscription, or of all.

    ``title`` is what they call it; ``edits``, whether they are told of edited entries, and ``template``, how entries
    are written ("" for the usual way), are None where nothing was said. ``proof`` is how many of the latest entries are
    shown when a subscription begins. ``interval_s`` is how far apart its messages are at the least, 0 for at once, None
    where nothing was said.
    """

    muted: bool = False
    title: str = ""
    edits: bool | None = None
    template: str | None = None
    proof: int | None = None
    interval_s: int | None = None
    rules: tuple[Rule, ...] = ()


NONE: Final = Preferences()
USUAL_PROOF: Final = 1

ByNumber = Mapping[int, Preferences]
"""One person's preferences, by the numbers of their subscriptions and ``FOR_ALL``; what is absent is ``NONE``."""


def tells_edits(preferences: ByNumber, number: int) -> bool:
    """Say whether a person is told of edits of one subscription."""
    own, general = _both(preferences, number)
    if own.edits is not None:
        return own.edits
    return True if general.edits is None else general.edits


def template(preferences: ByNumber, number: int) -> str:
    """Return the template for one subscription; "" for the usual way."""
    own, general = _both(preferences, number)
    return (own.template if own.template is not None else general.template) or ""


def interval_s(preferences: ByNumber, number: int) -> int:
    """Return how far apart a person wants to be told of one subscription; 0 for at once."""
    own, general = _both(preferences, number)
    return (own.interval_s if own.interval_s is not None else general.interval_s) or 0


def chooses(preferences: ByNumber) -> bool:
    """Say whether :func:`withheld` may find anything of any subscription."""
    return any(each.muted or each.rules or each.edits is False for each in preferences.values())


def spaces(preferences: ByNumber) -> bool:
    """Say whether there is a subscription of which a person is not told at once."""
    return any(each.interval_s for each in preferences.values())


def free_s(queued_s: float, told_s: float | None, interval_s: float) -> float:
    """Return from when on an item of a channel may be sent that was queued at ``queued_s`` (all Unix s).

    What comes after a quiet time may be sent at once; what follows sooner than the interval waits for its end. The
    channel was told last at ``told_s``, None for never: what was queued by then and had no room in that message is
    part of it. How often the channel is polled does not depend on it.
    """
    if told_s is None or queued_s <= told_s:
        return queued_s
    return max(queued_s, told_s + interval_s)


def withheld(
    preferences: ByNumber, number: int, versions: Iterable[tuple[Delta, Sequence[Subject]]], *, edits: bool
) -> tuple[int, ...] | None:
    """Return the positions of changes that a person is not told, counted through; None for everything.

    ``versions`` of one subscription would be told as one, each with its changes as :func:`service.filters.subjects`
    returns them; ``edits`` says which part of them. Notices pass every filter, but no mute.
    """
    both = _both(preferences, number)
    if any(each.muted for each in both) or (edits and not tells_edits(preferences, number)):
        return None
    left_out, anything, first = [], False, 0
    for delta, seen in versions:
        anything = anything or delta.notice is not None
        for position, (change, subject) in enumerate(zip(delta.changes, seen, strict=True), first):
            if is_edit(change) is not edits:
                continue
            if all(passes(each.rules, subject) for each in both):
                anything = True
            else:
                left_out.append(position)
        first += len(delta.changes)
    return tuple(left_out) if anything or not left_out else None


def _both(preferences: ByNumber, number: int) -> tuple[Preferences, Preferences]:
    return preferences.get(number, NONE), preferences.get(FOR_ALL, NONE)
