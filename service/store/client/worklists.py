"""Worklists: lists of users who may have work of one kind, for example messages to be delivered.

A user is added before the work is stored, and removed when no work is found. Every user with work is therefore listed.
Each addition has a unique timestamp. A removal has no effect if the timestamp has changed, because the user was added
again.
"""

import secrets
import time
from collections.abc import Collection, Iterable, Mapping

from service.model import UserId
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisClient, RedisRepository, script_command


def unique_timestamp() -> float:
    """Return the Unix time in ms plus a random fraction. Two calls are very unlikely to return the same number."""
    return time.time_ns() // 1_000_000 + secrets.randbelow(1000) / 1024


class Worklist(RedisRepository):
    """A sorted set of users. The score of a user is the timestamp of the user's last addition."""

    def __init__(self, redis: RedisClient, key: str) -> None:
        """Create an accessor for the worklist stored at ``key``."""
        super().__init__(redis)
        self._key = key

    def add_command(self, uids: Iterable[UserId]) -> Command:
        """Return the command that adds users, with new timestamps. ``uids`` must not be empty."""
        return ("ZADD", self._key, *(part for uid in uids for part in (unique_timestamp(), uid)))

    async def timestamps(self, uids: Collection[UserId]) -> dict[UserId, float | None]:
        """Return the timestamp of each user's last addition; None for a user who is not listed.

        A caller that wants to remove users has to call this before it checks whether they have work.
        """
        found = await self._redis.call("ZMSCORE", self._key, *uids) if uids else []
        return dict(zip(uids, found, strict=True))

    async def remove(self, timestamps: Mapping[UserId, float | None], uids: Iterable[UserId]) -> None:
        """Remove users (``uids``) who have no work.

        ``timestamps`` is the result of :meth:`timestamps` from before the caller looked for work. A user who was added
        again since then stays. A user whose timestamp is None is ignored.
        """
        await self._redis.call_many(
            [
                script_command("zset_remove_if_unchanged", (self._key,), uid, repr(stamp))
                for uid in dict.fromkeys(uids)
                if (stamp := timestamps[uid]) is not None
            ]
        )

    async def all(self, limit: int = 0) -> list[UserId]:
        """Return the users in the order of their last addition, the earliest first.

        ``limit`` is the maximum number of users; 0 stands for all of them.
        """
        return [uid.decode() for uid in await self._redis.call("ZRANGE", self._key, 0, limit - 1)]
