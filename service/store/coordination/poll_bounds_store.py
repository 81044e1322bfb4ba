"""Limits that admins set on how often single channels are polled. Every worker reads all of them."""

from collections.abc import Mapping

import msgspec

from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds
from service.errors import LimitReached
from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

MAX_BOUNDED_CHANNELS = 10_000
"""Maximum number of channels with poll bounds: every worker holds all of them in memory."""


class BoundsRevision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits on how often a channel is polled, set at ``at_s`` (Unix s) by the admin ``by``.

    ``before`` are the limits before this change.
    """

    bounds: ChannelBounds
    at_s: float
    by: str
    before: ChannelBounds


class BoundsSnapshot(msgspec.Struct, frozen=True):
    """All limits that admins have set on how often single channels are polled.

    ``edition`` is the number of the last change to any of these limits.
    """

    edition: int = -1
    by_channel: Mapping[ChannelId, ChannelBounds] = {}


class PollBoundsStore(RedisRepository):
    """Poll bounds by channel. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def get(self, cid: ChannelId) -> BoundsRevision | None:
        """Return the limits on how often a channel is polled, as an admin set them last; None if there are none."""
        raw = await self._redis.call("HGET", keys.POLL_BOUNDS, cid)
        return _parse_bounds(raw) if raw else None

    async def set(self, cid: ChannelId, bounds: ChannelBounds, *, by: str = "") -> None:
        """Set limits on how often a channel is polled.

        The channel's owner applies the limits from its next maintenance interval on. ``by`` is the admin's name. Raises
        :class:`service.errors.LimitReached` if ``MAX_BOUNDED_CHANNELS`` other channels have such limits already.
        """
        script_keys = (keys.POLL_BOUNDS, keys.POLL_BOUNDS_EDITION)
        kept = await self._redis.run_script(
            "bounds_set", script_keys, cid, msgspec.json.encode(bounds), by, MAX_BOUNDED_CHANNELS
        )
        if not kept:
            raise LimitReached(
                f"{MAX_BOUNDED_CHANNELS:,} channels have bounds of their own already. Take some of them away."
            )

    async def delete(self, cid: ChannelId) -> None:
        """Delete the poll bounds of a channel that is being deleted."""
        await self._redis.call_many([("HDEL", keys.POLL_BOUNDS, cid), ("INCR", keys.POLL_BOUNDS_EDITION)])

    async def load(self, known: BoundsSnapshot) -> BoundsSnapshot:
        """Return the limits on how often channels are polled, of all channels that have such limits.

        ``known`` is the result of the caller's last call. If no limits have changed since, it is returned unchanged.
        """
        edition = int(await self._redis.call("GET", keys.POLL_BOUNDS_EDITION) or 0)
        if edition == known.edition:
            return known
        # Later changes may be among them; they are read again with the next edition.
        found = await self._redis.call("HGETALL", keys.POLL_BOUNDS)
        every = {cid.decode(): _parse_bounds(raw).bounds for cid, raw in found.items()}
        return BoundsSnapshot(edition, {cid: bounds for cid, bounds in every.items() if bounds != NO_BOUNDS})


def _parse_bounds(raw: bytes) -> BoundsRevision:
    fields = msgspec.json.decode(raw)
    texts = {name: msgspec.json.decode(fields[name]) for name in ("bounds", "before")}  # JSON within the JSON
    return msgspec.convert(fields | texts, BoundsRevision)
