"""Poll bounds: limits that admins set on how often individual channels are polled.

Every worker reads the poll bounds of all channels.
"""

from collections.abc import Mapping

import msgspec

from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds
from service.errors import LimitReached
from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

MAX_BOUNDED_CHANNELS = 10_000
"""Maximum number of channels with poll bounds: every worker keeps all of them in memory."""


class BoundsRevision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last change of a channel's poll bounds. Admins set these bounds to limit how often the channel is polled.

    - ``bounds``: the bounds after the change.
    - ``at_s``: when the change was made (Unix s).
    - ``by``: name of the admin who made the change.
    - ``before``: the bounds before the change.
    """

    bounds: ChannelBounds
    at_s: float
    by: str
    before: ChannelBounds


class BoundsSnapshot(msgspec.Struct, frozen=True):
    """The poll bounds of all channels for which admins have set any. They limit how often a channel is polled.

    - ``edition``: sequence number of the last change to any channel's bounds; -1 if no bounds were read yet.
    - ``by_channel``: maps channels to their bounds.
    """

    edition: int = -1
    by_channel: Mapping[ChannelId, ChannelBounds] = {}


class PollBoundsStore(RedisRepository):
    """Reads and sets the poll bounds of channels. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def get(self, cid: ChannelId) -> BoundsRevision | None:
        """Return the poll bounds that an admin last set for a channel; None if there are none."""
        raw = await self._redis.call("HGET", keys.POLL_BOUNDS, cid)
        return _parse_bounds(raw) if raw else None

    async def set(self, cid: ChannelId, bounds: ChannelBounds, *, by: str = "") -> None:
        """Set the poll bounds of a channel, which limit how often it is polled.

        ``by`` is the admin's name. The channel's owner applies the bounds at its next maintenance interval. Raises
        :class:`service.errors.LimitReached` if ``MAX_BOUNDED_CHANNELS`` other channels already have bounds.
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
        """Delete the poll bounds of a channel."""
        await self._redis.call_many([("HDEL", keys.POLL_BOUNDS, cid), ("INCR", keys.POLL_BOUNDS_EDITION)])

    async def load(self, known: BoundsSnapshot) -> BoundsSnapshot:
        """Return the poll bounds of all channels that have any.

        ``known`` is the result of the previous call. If no bounds have changed since that call, ``known`` itself is
        returned.
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
