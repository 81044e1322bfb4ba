"""Which channels a page lists, of all in the roster, and in which order."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final, Literal

import msgspec

from service.console.roster import Roster, Row
from service.errors import UserError
from service.model import ChannelId

Sort = Literal["id", "title", "subscribers", "news", "version", "site", "failing", "added"]
State = Literal["polled", "failing", "idle", "paused", "blocked", "moved"]
"""``failing``: the last poll failed. ``idle``: neither subscribed to nor listed, so nobody polls it. ``paused``: admins
want nobody to poll it. ``blocked``: they want its host to be asked for nothing."""

_CURSOR: Final = re.compile(r"([0-9a-f]{40})(?:\.(\d{1,9}))?")
_ORDER_LASTS_S: Final = 5.0

_NEVER_S: Final = inf

_KEYS: Final[Mapping[Sort, Callable[[Roster, Row], Any]]] = {
    "id": lambda _, row: row.id,
    "title": lambda _, row: row.folded,
    "subscribers": lambda roster, row: -roster.subscribers(row.id),
    "news": lambda _, row: row.update_interval_s,
    "version": lambda _, row: -row.version,
    "site": lambda _, row: row.site,
    "failing": lambda _, row: row.failing_since_s or _NEVER_S,
    "added": lambda _, row: -row.created_s,
}
"""Those that are alike stand in the order of their titles."""
_AT_FIRST: Final[Mapping[str, Callable[[Row, float], bool]]] = {
    "failing": lambda row, _: row.failing_since_s > 0,
    "paused": lambda row, now_s: row.paused_until_s > now_s,
    "moved": lambda row, _: row.moved,
}
"""What must hold of channels in a state: cheap to ask, and true of few."""


class Wanted(msgspec.Struct, frozen=True):
    """What is looked for: a text in title or URL (any case), a state ("" for any), a tag ("" for any), a site."""

    text: str = ""
    state: State | Literal[""] = ""
    tag: str = ""
    site: str = ""
    sort: Sort = "id"
    reverse: bool = False


def doing(row: Row, subscribers: int, now_s: float, *, blocked: bool) -> State:
    """Return what becomes of a channel."""
    if row.moved:
        return "moved"
    if blocked:
        return "blocked"
    if row.paused_until_s > now_s:
        return "paused"
    if not (subscribers or row.listed):
        return "idle"
    return "failing" if row.failing_since_s else "polled"


class Finder:
    """Finds in a roster; keeps the orders that were asked for while they are good enough."""

    def __init__(self, roster: Roster) -> None:
        """Use this roster."""
        self._roster = roster
        self._orders: dict[Sort, _Order] = {}

    def find(self, wanted: Wanted) -> Sequence[ChannelId]:
        """Return the ids of all channels that are looked for, in order."""
        order = self._order(wanted.sort)
        ids: Sequence[ChannelId] = order[::-1] if wanted.reverse else order
        rows, text, now_s = self._roster.rows, wanted.text.casefold().strip(), time.time()
        if text:
            ids = [cid for cid in ids if text in rows[cid].folded]
        if wanted.site:
            ids = [cid for cid in ids if rows[cid].site == wanted.site]
        if wanted.tag:
            ids = [cid for cid in ids if wanted.tag in rows[cid].tags]
        if wanted.state:
            counted, at_first = self._roster.subscribers, _AT_FIRST.get(wanted.state)
            if at_first is not None:
                ids = [cid for cid in ids if at_first(rows[cid], now_s)]
            blocked = self._roster.blocked
            ids = [
                cid for cid in ids if doing(rows[cid], counted(cid), now_s, blocked=blocked(rows[cid])) == wanted.state
            ]
        return ids

    def tags(self) -> Sequence[str]:
        """Return all tags in use, in order."""
        return sorted({tag for row in self._roster.rows.values() for tag in row.tags})

    def _order(self, sort: Sort) -> list[ChannelId]:
        roster, known = self._roster, self._orders.get(sort)
        now_s = time.monotonic()
        if known is not None and known.serves(roster, now_s):
            return known.ids
        # Sorting keeps what is alike in order; and what was in order before nearly is, and is sorted the faster for it.
        if sort in {"id", "title"}:
            before = [cid for cid in known.ids if cid in roster.rows] if known else []
            new = roster.rows.keys() - set(before) if len(before) < len(roster.rows) else ()
            start: Sequence[ChannelId] = [*before, *new]
        else:
            start = self._order("title")
        rows, key = roster.rows, _KEYS[sort]
        ids = sorted(start, key=lambda cid: key(roster, rows[cid]))
        self._orders[sort] = _Order(ids, roster.members, roster.edition, now_s)
        return ids


class _Order(msgspec.Struct, frozen=True):
    ids: list[ChannelId]
    members: int
    edition: int
    made_s: float

    def serves(self, roster: Roster, now_s: float) -> bool:
        """Say whether this is still the order of the same channels, or nearly."""
        good_enough = self.edition == roster.edition or now_s - self.made_s < _ORDER_LASTS_S
        return self.members == roster.members and good_enough


def after(ids: Sequence[ChannelId], cursor: str) -> int:
    """Return where a page begins: behind the channel that a cursor names, or where that was if it is gone.

    Raises :class:`UserError` for a cursor that is none of ours.
    """
    if not cursor:
        return 0
    read = _CURSOR.fullmatch(cursor)
    if read is None:
        raise UserError("This cursor is not one the console gave out. Start again without it.")
    try:
        return ids.index(read[1]) + 1
    except ValueError:
        # Those behind it have moved up by one; and rather is one seen twice than never.
        return min(max(0, int(read[2] or 0) - 1), len(ids))


def cursor_at(ids: Sequence[ChannelId], end: int) -> str:
    """Return the cursor of what follows the first ``end``; "" if nothing does."""
    return f"{ids[end - 1]}.{end}" if 0 < end < len(ids) else ""
