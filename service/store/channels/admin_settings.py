"""Remarks about single channels: the tags, notes and pauses that admins set, and the polling intervals over time.

Only changes of an interval are stored, and only the last ``MAX_POLL_RATES``: at most 8 bytes each in a channel's hash.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from service.corona.polling_plans import NOTABLE_GAP_CHANGE
from service.corona.update_rates import UpdateHistory
from service.model import Channel, ChannelId
from service.store.channels.channels import CHANNEL_FIELDS, existing_fields, parse_state
from service.store.client import keys
from service.store.client.connection import BatchedRepository, script_command

MAX_POLL_RATES: Final = 24
_PACE: Final = struct.Struct("<If")
POLL_RATE_BYTES: Final = _PACE.size


class PollRate(msgspec.Struct, frozen=True):
    """From ``since_s`` on (Unix s), the fleet polled a channel each ``interval_s``; 0 if not at all."""

    since_s: float
    interval_s: float


class PollRateHistory(BatchedRepository):
    """Note and read them. Every method may raise :class:`StoreUnavailable`."""

    async def record(self, intervals_s: Iterable[tuple[ChannelId, float]]) -> None:
        """Note how often channels are polled from now on; what differs little from what was noted last is left out."""
        await self._redis.call_many(
            [
                script_command(
                    "channel_paced", (keys.channel(cid),), repr(interval_s), NOTABLE_GAP_CHANGE, MAX_POLL_RATES
                )
                for cid, interval_s in intervals_s
            ]
        )

    async def get(self, cid: ChannelId) -> tuple[PollRate, ...]:
        """Return how often a channel was polled since when, oldest first."""
        return unpack_poll_rates(await self._redis.call("HGET", keys.channel(cid), "paces") or b"")


def unpack_poll_rates(packed: bytes) -> tuple[PollRate, ...]:
    """Return what a channel's field ``paces`` holds, oldest first."""
    return tuple(PollRate(float(since_s), interval_s) for since_s, interval_s in _PACE.iter_unpack(packed))


_REMARKED = (
    *CHANNEL_FIELDS,
    *("failing_since", "updates", "tags", "paused", "no_poll_before", "polled", "paces"),
)


class AdministeredChannel(msgspec.Struct, frozen=True):
    """A channel as admins file it. It is paused until ``paused_until_s`` (Unix s; 0 if it is not).

    Its last poll ended at ``polled_s``; its publisher wanted none before ``no_poll_before_s`` (Unix s; 0 if unknown).
    ``pace`` is how often it is polled now, as its owner noted it last; None if no owner has.
    """

    channel: Channel
    failing_since_s: float | None
    updates: UpdateHistory
    tags: tuple[str, ...]
    paused_until_s: float
    no_poll_before_s: float = 0.0
    polled_s: float = 0.0
    poll_rate: PollRate | None = None


class AdminSettings(BatchedRepository):
    """Read and set them. What is said of a channel that is not there is not kept."""

    async def read(self, cids: Sequence[ChannelId]) -> list[AdministeredChannel | None]:
        """Return channels with what is said of them, in the order asked for; None for those that are not there."""
        found = await self._redis.call_many([("HMGET", keys.channel(cid), *_REMARKED) for cid in cids])
        return [_remarked(cid, existing_fields(_REMARKED, values)) for cid, values in zip(cids, found, strict=True)]

    async def note(self, cid: ChannelId) -> str:
        """Return what is noted about a channel; "" if nothing is."""
        return ((await self._redis.call("HGET", keys.channel(cid), "note")) or b"").decode()

    async def set_note(self, cid: ChannelId, note: str) -> None:
        """Note something about a channel, in the place of what was noted before; "" for nothing."""
        await self._redis.run_script("channel_set", (keys.channel(cid),), "note", note)

    async def set_tags(self, tags_of: Sequence[tuple[ChannelId, Sequence[str]]]) -> None:
        """File channels under these words, none of which has a space."""
        await self._redis.call_many(
            [script_command("channel_set", (keys.channel(cid),), "tags", " ".join(tags)) for cid, tags in tags_of]
        )

    async def pause(self, cids: Sequence[ChannelId], for_s: float) -> None:
        """Have nobody poll channels for so long, whatever anybody says meanwhile; 0 to have them polled again."""
        for_ms = int(for_s * 1000)
        await self._redis.call_many(
            [script_command("channel_pause", (keys.channel(cid), keys.poll_pause(cid)), for_ms) for cid in cids]
        )


def _remarked(cid: ChannelId, fields: dict[bytes, bytes]) -> AdministeredChannel | None:
    state = parse_state(cid, fields)
    if state is None:
        return None
    return AdministeredChannel(
        channel=state.channel,
        failing_since_s=state.failing_since_s,
        updates=state.updates,
        tags=tuple(fields.get(b"tags", b"").decode().split()),
        paused_until_s=float(fields.get(b"paused", b"0")),
        no_poll_before_s=float(fields.get(b"no_poll_before", b"0")),
        polled_s=float(fields.get(b"polled", b"0")),
        poll_rate=next(iter(unpack_poll_rates(fields.get(b"paces", b"")[-POLL_RATE_BYTES:])), None),
    )
