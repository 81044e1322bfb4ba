"""The log of changed channels, which tells workers which of their channels they have to read again.

A channel changes when it is created, deleted or listed by an admin, and when a user subscribes or unsubscribes. The log
entry is written after the change. If a crash prevents that, the worker notices the change later, when it next reads all
its channels.
"""

from collections.abc import Sequence

from service.model import ChannelId
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisRepository, script_command

MAX_CHANGED_CHANNELS = 20_000
"""Maximum number of channels in the log; the ones that changed longest ago are removed."""


def record_change(channel_id: ChannelId) -> Command:
    """Return the command that records a change to a channel or its subscribers."""
    log = keys.REGISTRY_CHANGES, keys.REGISTRY_CHANGE_NUMBERS
    return script_command("registry_record_change", log, channel_id, MAX_CHANGED_CHANNELS)


class RegistryChanges(RedisRepository):
    """Reads the log of changed channels. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def last_number(self) -> int:
        """Return the number of the last change; 0 if there was none."""
        return int(await self._redis.call("HGET", keys.REGISTRY_CHANGE_NUMBERS, "last") or 0)

    async def after(self, number: int) -> tuple[Sequence[ChannelId] | None, int]:
        """Return the channels that changed after the change with the given number, and the number of the last change.

        The channels are None if the log no longer has all changes after ``number``. The caller then has to read all
        channels.
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
