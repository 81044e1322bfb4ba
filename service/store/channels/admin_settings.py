"""Settings that admins make for individual channels: tags, notes and pauses."""

from collections.abc import Sequence

import msgspec

from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.corona.update_rates import UpdateHistory
from service.model import Channel, ChannelId
from service.store.channels.channel_records import CHANNEL_FIELDS, parse_state, read_records
from service.store.channels.poll_rate_history import POLL_RATE_BYTES, PollRate, unpack_poll_rates
from service.store.client import keys
from service.store.client.redis_client import RedisRepository, script_command

_ADMINISTERED_FIELDS = (
    *CHANNEL_FIELDS,
    *("failing_since", "backoff", "tags", "paused", "no_poll_before", "polled", "paces"),
)


class AdministeredChannel(msgspec.Struct, frozen=True):
    """A channel with its admins' settings and the state of its polls.

    - ``failing_since_s``: time of the first failed poll since the last successful one (Unix s); None if polls succeed.
    - ``updates``: statistics of the channel's updates.
    - ``tags``: tags that admins have given the channel.
    - ``paused_until_s``: end of the pause (Unix s); 0 if the channel is not paused.
    - ``no_poll_before_s``: time before which the publisher does not want to be polled (Unix s); 0 if the publisher has
      stated no such time.
    - ``polled_s``: end of the last poll (Unix s).
    - ``poll_rate``: the present poll rate; None if none was recorded.
    - ``limits``: the limits on polls that result from pauses, the publisher's hints, and failures.
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
    """Reads and changes the tags, notes and pauses of channels.

    Changes to a channel that does not exist are ignored.
    """

    async def read(self, cids: Sequence[ChannelId]) -> list[AdministeredChannel | None]:
        """Return channels with their admins' settings, in the order of ``cids``; None for each that does not exist."""
        found = await read_records(self._redis, cids, _ADMINISTERED_FIELDS)
        return [_parse_administered(cid, fields) for cid, fields in zip(cids, found, strict=True)]

    async def note(self, cid: ChannelId) -> str:
        """Return the admins' note on a channel; "" if there is none."""
        return ((await self._redis.call("HGET", keys.channel(cid), "note")) or b"").decode()

    async def set_note(self, cid: ChannelId, note: str) -> None:
        """Replace the admins' note on a channel; an empty ``note`` removes it."""
        await self._redis.run_script("channel_set_field", (keys.channel(cid),), "note", note)

    async def set_tags(self, tags_of: Sequence[tuple[ChannelId, Sequence[str]]]) -> None:
        """Replace the tags of channels. A tag must not contain a space.

        ``tags_of`` contains pairs (channel id, the channel's new tags).
        """
        await self._redis.call_many(
            [script_command("channel_set_field", (keys.channel(cid),), "tags", " ".join(tags)) for cid, tags in tags_of]
        )

    async def pause(self, cids: Sequence[ChannelId], for_s: float) -> None:
        """Pause the polling of channels for ``for_s`` seconds from now; 0 ends a pause.

        If a channel is already paused, the new pause replaces the present one.
        """
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
