"""The aims of the fleet and the bounds of single channels that admins have set, with their earlier values.

Every node reads all of them.
"""

from collections.abc import Mapping, Sequence

import msgspec

from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective
from service.errors import LimitReached
from service.model import ChannelId
from service.store.client import keys
from service.store.client.connection import RedisRepository

MAX_REVISIONS = 100


class Revision(msgspec.Struct, frozen=True):
    """One change of the aims: the ``number``-th, when (Unix s), by whom; ``aims`` None for those of the settings."""

    number: int
    at_s: float
    by: str
    aims: FleetObjective | None


class _Written(msgspec.Struct, frozen=True):
    """A revision as the script writes it: the aims are JSON within JSON."""

    number: int
    at_s: float
    by: str
    aims: str | None


class PolicyStore(RedisRepository):
    """The fleet's aims. Without any, each node has those of its settings."""

    async def get(self) -> FleetObjective | None:
        """Return what was set last; None if nothing was."""
        raw = await self._redis.call("GET", keys.FLEET_POLICY)
        return msgspec.json.decode(raw, type=FleetObjective) if raw else None

    async def set(self, aims: FleetObjective | None, *, by: str = "", seen: int | None = None) -> bool:
        """Have every node aim at this, or (None) at what its settings say, from its next maintenance interval on.

        ``seen`` is the number of the revision that this was decided upon: False if there is a later one, which then
        stays.
        """
        return bool(
            await self._redis.run_script(
                "policy_set",
                (keys.FLEET_POLICY, keys.FLEET_POLICY_HISTORY, keys.FLEET_POLICY_REVISION),
                "" if seen is None else seen,
                b"" if aims is None else msgspec.json.encode(aims),
                by,
                MAX_REVISIONS,
            )
        )

    async def history(self) -> list[Revision]:
        """Return the last revisions, newest first."""
        return [_revision(raw) for raw in await self._redis.call("LRANGE", keys.FLEET_POLICY_HISTORY, 0, -1)]


def _revision(raw: bytes) -> Revision:
    written = msgspec.json.decode(raw, type=_Written)
    aims = None if written.aims is None else msgspec.json.decode(written.aims, type=FleetObjective)
    return Revision(written.number, written.at_s, written.by, aims)


MAX_BOUNDED_CHANNELS = 10_000
"""Every node holds all of them."""

_KEYS = (keys.POLL_BOUNDS, keys.POLL_BOUNDS_EDITION)


class BoundsRevision(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel's bounds: since when (Unix s), by whom, and what held ``before``."""

    bounds: ChannelBounds
    at_s: float
    by: str
    before: ChannelBounds


class BoundsSnapshot(msgspec.Struct, frozen=True):
    """The bounds of all channels that have some, and which ``edition`` of them that is."""

    edition: int = -1
    of: Mapping[ChannelId, ChannelBounds] = {}


class _WrittenBounds(msgspec.Struct, frozen=True):
    """A channel's bounds as the script writes them: JSON within JSON."""

    bounds: str
    at_s: float
    by: str
    before: str


class BoundsStore(RedisRepository):
    """Every channel's bounds. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def get(self, cid: ChannelId) -> BoundsRevision | None:
        """Return what was set for a channel last; None if nothing was."""
        raw = await self._redis.call("HGET", keys.POLL_BOUNDS, cid)
        return _bounded(raw) if raw else None

    async def set(self, cid: ChannelId, bounds: ChannelBounds, *, by: str = "") -> None:
        """Have its owner keep a channel within these bounds from its next maintenance interval on.

        Raises :class:`service.errors.LimitReached` when ``MAX_BOUNDED_CHANNELS`` channels have some.
        """
        kept = await self._redis.run_script(
            "bounds_set", _KEYS, cid, msgspec.json.encode(bounds), by, MAX_BOUNDED_CHANNELS
        )
        if not kept:
            raise LimitReached(
                f"{MAX_BOUNDED_CHANNELS:,} channels have bounds of their own already. Take some of them away."
            )

    async def delete(self, cid: ChannelId) -> None:
        """Forget a channel's bounds together with the channel."""
        await self._redis.run_script("bounds_forget", _KEYS, cid)

    async def load(self, known: BoundsSnapshot) -> BoundsSnapshot:
        """Return the bounds of all channels: what is ``known``, if that is what holds."""
        edition, *found = await self._redis.run_script("bounds_read", _KEYS, known.edition)
        return BoundsSnapshot(int(edition), _read(found[0])) if found else known


def _read(flat: Sequence[bytes]) -> dict[ChannelId, ChannelBounds]:
    every = {cid.decode(): _bounded(raw).bounds for cid, raw in zip(flat[::2], flat[1::2], strict=True)}
    return {cid: bounds for cid, bounds in every.items() if bounds != NO_BOUNDS}


def _bounded(raw: bytes) -> BoundsRevision:
    written = msgspec.json.decode(raw, type=_WrittenBounds)
    now, before = (msgspec.json.decode(text, type=ChannelBounds) for text in (written.bounds, written.before))
    return BoundsRevision(now, written.at_s, written.by, before)
