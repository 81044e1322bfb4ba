"""What admins want of single channels' polls, where every node reads all of it, and what they wanted before."""

from collections.abc import Mapping, Sequence

import msgspec

from service.corona.policy import UNBOUNDED, Bounds
from service.errors import LimitReached
from service.model import ChannelId
from service.store import keys
from service.store.link import Part

MOST_BOUNDED = 10_000
"""Every node holds all of them."""

_KEYS = (keys.BOUNDS, keys.BOUNDS_EDITION)


class Bounded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel's bounds: since when (Unix s), by whom, and what held ``before``."""

    bounds: Bounds
    at_s: float
    by: str
    before: Bounds


class AllBounds(msgspec.Struct, frozen=True):
    """The bounds of all channels that have some, and which ``edition`` of them that is."""

    edition: int = -1
    of: Mapping[ChannelId, Bounds] = {}


class _Written(msgspec.Struct, frozen=True):
    """A channel's bounds as the script writes them: JSON within JSON."""

    bounds: str
    at_s: float
    by: str
    before: str


class BoundsStore(Part):
    """Every channel's bounds. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def get(self, cid: ChannelId) -> Bounded | None:
        """Return what was set for a channel last; None if nothing was."""
        raw = await self._link.call("HGET", keys.BOUNDS, cid)
        return _bounded(raw) if raw else None

    async def set(self, cid: ChannelId, bounds: Bounds, *, by: str = "") -> None:
        """Have its owner keep a channel within these bounds from its next maintenance interval on.

        Raises :class:`service.errors.LimitReached` when ``MOST_BOUNDED`` channels have some.
        """
        kept = await self._link.script("bounds_set", _KEYS, cid, msgspec.json.encode(bounds), by, MOST_BOUNDED)
        if not kept:
            raise LimitReached(f"{MOST_BOUNDED:,} channels have bounds of their own already. Take some of them away.")

    async def forget(self, cid: ChannelId) -> None:
        """Forget a channel's bounds together with the channel."""
        await self._link.script("bounds_forget", _KEYS, cid)

    async def all(self, known: AllBounds) -> AllBounds:
        """Return the bounds of all channels: what is ``known``, if that is what holds."""
        edition, *found = await self._link.script("bounds_read", _KEYS, known.edition)
        return AllBounds(int(edition), _read(found[0])) if found else known


def _read(flat: Sequence[bytes]) -> dict[ChannelId, Bounds]:
    every = {cid.decode(): _bounded(raw).bounds for cid, raw in zip(flat[::2], flat[1::2], strict=True)}
    return {cid: bounds for cid, bounds in every.items() if bounds != UNBOUNDED}


def _bounded(raw: bytes) -> Bounded:
    written = msgspec.json.decode(raw, type=_Written)
    now, before = (msgspec.json.decode(text, type=Bounds) for text in (written.bounds, written.before))
    return Bounded(now, written.at_s, written.by, before)
