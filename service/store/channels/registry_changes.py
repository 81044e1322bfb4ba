"""The log of changed channels, from which workers learn which channels they have to read again.

A channel is logged when it is created, deleted or listed by an admin, and when a user subscribes or unsubscribes. The
log entry is written after the change. If a crash prevents that, workers notice the change the next time they read all
their channels.
"""

from collections.abc import Sequence

from service.model import ChannelId
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisRepository, script_command

MAX_CHANGED_CHANNELS = 20_000
"""Maximum number of channels in the log; the ones that changed longest ago are removed."""


def record_change(channel_id: ChannelId) -> Command:
    """Return a command that logs a change to a channel or its subscribers."""
    log = keys.REGISTRY_CHANGES, keys.REGISTRY_CHANGE_NUMBERS
    return script_command("registry_record_change", log, channel_id, MAX_CHANGED_CHANNELS)


class RegistryChanges(RedisRepository):
    """Reads the log of changed channels. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def last_number(self) -> int:
        """Return the sequence number of the last logged change; 0 if there was none."""
        return int(await self._redis.call("HGET", keys.REGISTRY_CHANGE_NUMBERS, "last") or 0)

    async def after(self, number: int) -> tuple[Sequence[ChannelId] | None, int]:
        """Return the channels that changed after the change with the sequence number ``number``.

        The result is a pair (channel ids, sequence number). Pass this sequence number to the next call. The channel ids
        are None if the log no longer contains all changes after ``number``; the caller then has to read all channels.
        """
        changed, (last, removed) = await self._redis.call_many(
            [
                ("ZRANGE", keys.REGISTRY_CHANGES, f"({number}", "+inf", "BYSCORE", "WITHSCORES"),
                ("HMGET", keys.REGISTRY_CHANGE_NUMBERS, "last", "removed"),
            ]
        )
        # The channels were read first: changes that are recorded in between have a greater number than these.
        latest = max((int(score) for _, score in changed), default=number)
        if int(removed or 0) > number or int(last or 0) < number:
            return None, int(last or 0)
        return [channel_id.decode() for channel_id, _ in changed], latest
