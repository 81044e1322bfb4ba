"""Admins' settings of single channels (tags, notes, pauses), and the history of channels' poll rates.

The poll rate history holds changes only, and only the last ``MAX_POLL_RATES``. It is packed in the field ``paces`` of
the channel's hash, 8 bytes an entry, little-endian, oldest first:

====  =======  ==================================================
size  type     content
====  =======  ==================================================
4     uint32   since when (Unix s)
4     float32  interval between two polls (s); 0 if not polled
====  =======  ==================================================
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.corona.polling_plans import NOTABLE_GAP_CHANGE
from service.corona.update_rates import UpdateHistory
from service.model import Channel, ChannelId
from service.store.channels.channel_records import CHANNEL_FIELDS, parse_state, read_records
from service.store.client import keys
from service.store.client.redis_client import RedisRepository, script_command

MAX_POLL_RATES: Final = 24
_POLL_RATE: Final = struct.Struct("<If")
POLL_RATE_BYTES: Final = _POLL_RATE.size


class PollRate(msgspec.Struct, frozen=True):
    """A channel's poll rate from ``since_s`` (Unix s) until the next entry of its history.

    The fleet polled the channel every ``interval_s`` seconds; 0 means that it did not poll the channel.
    """

    since_s: float
    interval_s: float


class PollRateHistory(RedisRepository):
    """History of poll rates by channel. Every method may raise :class:`StoreUnavailable`."""

    async def record(self, intervals_s: Iterable[tuple[ChannelId, float]]) -> None:
        """Record the present poll intervals of channels: pairs (channel id, seconds).

        An interval that differs little from the last recorded interval of the channel is skipped.
        """
        await self._redis.call_many(
            [
                script_command(
                    "channel_record_poll_rate",
                    (keys.channel(cid),),
                    repr(interval_s),
                    NOTABLE_GAP_CHANGE,
                    MAX_POLL_RATES,
                )
                for cid, interval_s in intervals_s
            ]
        )

    async def get(self, cid: ChannelId) -> tuple[PollRate, ...]:
        """Return a channel's poll rates, oldest first."""
        return unpack_poll_rates(await self._redis.call("HGET", keys.channel(cid), "paces") or b"")


def unpack_poll_rates(packed: bytes) -> tuple[PollRate, ...]:
    """Return the poll rates, oldest first, from ``packed``, the content of the field ``paces`` of a channel's hash."""
    return tuple(PollRate(float(since_s), interval_s) for since_s, interval_s in _POLL_RATE.iter_unpack(packed))


_ADMINISTERED_FIELDS = (
    *CHANNEL_FIELDS,
    *("failing_since", "backoff", "tags", "paused", "no_poll_before", "polled", "paces"),
)


class AdministeredChannel(msgspec.Struct, frozen=True):
    """A channel with admins' settings.

    ``failing_since_s`` is the time of the first failed poll since the last successful one (Unix s); None if polls
    succeed. ``paused_until_s`` is the end of a pause (Unix s); 0 means that the channel is not paused. ``polled_s`` is
    the end of the last poll (Unix s). ``no_poll_before_s`` is the time before which the publisher wants no poll (Unix
    s); 0 if the publisher has not requested that. ``poll_rate`` is the present poll rate; None if none was recorded.
    ``limits`` are the limits on polls that follow from pauses, the publisher's hints, and failures.
    """

    channel: Channel
    failing_since_s: float | None
    updates: UpdateHistory
    tags: tuple[str, ...]
    paused_until_s: float
    no_poll_before_s: float = 0.0
    polled_s: float = 0.0
    poll_rate: PollRate | None = None
    limits: PollingLimits = NO_LIMITS


class AdminSettings(RedisRepository):
    """Tags, notes and pauses of channels. A setting for a channel that does not exist is ignored."""

    async def read(self, cids: Sequence[ChannelId]) -> list[AdministeredChannel | None]:
        """Return channels with their settings, in the order of ``cids``; None for a channel that does not exist."""
        found = await read_records(self._redis, cids, _ADMINISTERED_FIELDS)
        return [_parse_administered(cid, fields) for cid, fields in zip(cids, found, strict=True)]

    async def note(self, cid: ChannelId) -> str:
        """Return the note of a channel; "" if it has none."""
        return ((await self._redis.call("HGET", keys.channel(cid), "note")) or b"").decode()

    async def set_note(self, cid: ChannelId, note: str) -> None:
        """Replace the note of a channel; "" removes it."""
        await self._redis.run_script("channel_set_field", (keys.channel(cid),), "note", note)

    async def set_tags(self, tags_of: Sequence[tuple[ChannelId, Sequence[str]]]) -> None:
        """Replace the tags of channels. ``tags_of`` has pairs (channel id, its new tags).

        A tag must not contain a space.
        """
        await self._redis.call_many(
            [script_command("channel_set_field", (keys.channel(cid),), "tags", " ".join(tags)) for cid, tags in tags_of]
        )

    async def pause(self, cids: Sequence[ChannelId], for_s: float) -> None:
        """Pause the polls of channels for ``for_s`` seconds, which replaces any earlier pause; 0 ends a pause."""
        for_ms = int(for_s * 1000)
        await self._redis.call_many(
            [
                script_command("channel_pause_by_admin", (keys.channel(cid), keys.poll_pause(cid)), for_ms)
                for cid in cids
            ]
        )


def _parse_administered(cid: ChannelId, fields: dict[bytes, bytes]) -> AdministeredChannel | None:
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
        limits=state.polling_limits(),
    )
