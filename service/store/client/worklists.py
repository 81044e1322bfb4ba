"""Worklists: lists of users who may have work of one kind, for example messages to be delivered.

A user is added to the list before work is stored for the user, and removed when a process finds no work. Every user
with work is therefore listed. Each addition has a unique timestamp. If a user is added again while a process looks for
the user's work, the timestamp changes, and that process does not remove the user.
"""

import secrets
import time
from collections.abc import Collection, Iterable, Mapping

from service.model import UserId
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisClient, RedisRepository, script_command


def unique_timestamp() -> float:
    """Return the Unix time in ms plus a random fraction, so that two results are very unlikely to be equal."""
    return time.time_ns() // 1_000_000 + secrets.randbelow(1000) / 1024


class Worklist(RedisRepository):
    """A list of users who may have work of one kind, such as messages to be delivered.

    It is stored as a sorted set. Each user's score is the timestamp of the user's last addition to the list.
    """

    def __init__(self, redis: RedisClient, key: str) -> None:
        """Create an accessor for the worklist stored at ``key``."""
        super().__init__(redis)
        self._key = key

    def add_command(self, uids: Iterable[UserId]) -> Command:
        """Return a command that adds users, each with a new timestamp. ``uids`` must not be empty."""
        return ("ZADD", self._key, *(part for uid in uids for part in (unique_timestamp(), uid)))

    async def timestamps(self, uids: Collection[UserId]) -> dict[UserId, float | None]:
        """Return a mapping from users to the timestamps of their last additions; None for a user who is not listed.

        A caller that wants to remove users must call this before it checks whether they have work.
        """
        found = await self._redis.call("ZMSCORE", self._key, *uids) if uids else []
        return dict(zip(uids, found, strict=True))

    async def remove(self, timestamps: Mapping[UserId, float | None], uids: Iterable[UserId]) -> None:
        """Remove users who were found to have no work, unless they were added again in the meantime.

        ``timestamps`` is the result of :meth:`timestamps` from before the caller looked for work. Users whose timestamp
        is None are ignored.
        """
        await self._redis.call_many(
            [
                script_command("zset_remove_if_unchanged", (self._key,), uid, repr(stamp))
                for uid in dict.fromkeys(uids)
                if (stamp := timestamps[uid]) is not None
            ]
        )

    async def all(self, limit: int = 0) -> list[UserId]:
        """Return the listed users, sorted by the time of their last addition, earliest first.

        ``limit`` is the maximum number of users; 0 means no limit.
        """
        return [uid.decode() for uid in await self._redis.call("ZRANGE", self._key, 0, limit - 1)]
