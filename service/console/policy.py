"""What the fleet is to achieve: as it is, what other aims would come to, their history, and the way back."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from service.console.roster import Roster, Row
from service.console.whatif import Fleet, Move, Outcome, Weighed
from service.corona.policy import UNBOUNDED, Aims, Bounds, Policy
from service.model import ChannelId
from service.settings import Settings
from service.store import Store
from service.store.bounds import AllBounds
from service.store.policy import Revision

_MOVED_SHOWN = 5


class PolicyNow(msgspec.Struct, frozen=True):
    """What the fleet aims at: what was ``set``, or the settings' (``usual``).

    ``revision`` is the number of the last change, 0 if there was none; ``history`` has the latest, newest first.
    """

    aims: Aims
    set: bool
    usual: Aims
    revision: int
    history: tuple[Revision, ...]


class Moved(msgspec.Struct, frozen=True):
    """A channel whose news would come sooner or later: the mean time to the poll that sees it, in seconds."""

    channel: ChannelId
    title: str
    subscribers: int
    before_s: float
    after_s: float


class WhatIf(msgspec.Struct, frozen=True):
    """What the present aims come to on so many channels that are polled, and what others would.

    ``sooner`` and ``later`` name the channels that subscribers would feel most.
    """

    channels: int
    nodes: int
    now: Outcome
    then: Outcome
    sooner: tuple[Moved, ...] = ()
    later: tuple[Moved, ...] = ()


async def policy_now(store: Store, settings: Settings) -> PolicyNow:
    """Return what the fleet aims at, and since when."""
    aims, history = await asyncio.gather(store.policy.get(), store.policy.history())
    usual = settings.policy().aims
    return PolicyNow(aims or usual, aims is not None, usual, history[0].number if history else 0, tuple(history))


async def what_if(store: Store, settings: Settings, roster: Roster, aims: Aims) -> WhatIf:
    """Return what aims would come to on the present channels, nodes and sites' rates."""
    present, nodes, rates, bounds, _ = await asyncio.gather(
        store.policy.get(), store.ring.view(), store.hosts.rates(), store.bounds.all(AllBounds()), roster.look()
    )
    usual = settings.policy()
    before = msgspec.structs.replace(usual, aims=present or usual.aims)
    after = msgspec.structs.replace(usual, aims=aims)
    # Some 0.2 s of arithmetic for 100,000 channels.
    found, *moves = await asyncio.to_thread(_weighed_up, roster, len(nodes), _Set(rates, bounds.of), before, after)
    channels = await store.channels.many([cid for some in moves for cid, _ in some])
    titles = {channel.id: channel.title or channel.url for channel in channels if channel is not None}
    sooner, later = (
        tuple(
            Moved(cid, titles[cid], roster.subscribers(cid), move.before_s, move.after_s)
            for cid, move in some
            if cid in titles
        )
        for some in moves
    )
    return msgspec.structs.replace(found, sooner=sooner, later=later)


_Moves = Sequence[tuple[ChannelId, Move]]


class _Set(NamedTuple):
    """What admins set besides the aims: sites' requests per second, and bounds of channels."""

    site_rates: Mapping[str, float]
    bounds: Mapping[ChannelId, Bounds]


def _weighed_up(roster: Roster, nodes: int, own: _Set, before: Policy, after: Policy) -> tuple[WhatIf, _Moves, _Moves]:
    rows = [row for row in list(roster.rows.values()) if _is_polled(roster, row)]
    fleet = Fleet([_weighed(roster, row, own.bounds) for row in rows], nodes, own.site_rates)
    now = fleet.outcome(before)
    if before == after:
        return WhatIf(len(rows), nodes, now, now), (), ()
    sooner, later = fleet.moved(before, after, _MOVED_SHOWN)
    named = ([(rows[move.place].id, move) for move in moves] for moves in (sooner, later))
    first, second = named
    return WhatIf(len(rows), nodes, now, fleet.outcome(after)), first, second


def _is_polled(roster: Roster, row: Row) -> bool:
    return not row.moved and (row.listed or roster.subscribers(row.id) > 0)


def _weighed(roster: Roster, row: Row, bounds: Mapping[ChannelId, Bounds]) -> Weighed:
    charged = "" if row.private else row.site
    own = bounds.get(row.id, UNBOUNDED)
    return Weighed(roster.subscribers(row.id), row.update_interval_s, row.private, charged, own)


def undone(history: Sequence[Revision]) -> tuple[bool, Aims | None]:
    """Return whether the last change can be undone, and what held before it (None for the settings)."""
    if not history:
        return False, None
    return True, history[1].aims if len(history) > 1 else None
