"""Gauges that describe the store: the number of people, the dead letters, and Redis's memory and persistence."""

import asyncio
from collections.abc import Mapping
from typing import Any

from service.errors import StoreUnavailable
from service.observability.metrics import (
    DEAD_LETTERS,
    REDIS_MEMORY,
    REDIS_MEMORY_SHARE,
    REDIS_PERSISTENCE_FAILURES,
    USERS,
)
from service.store import Store

RedisInfo = Mapping[str, str]
"""The fields in Redis's reply to the INFO command."""


async def update_store_gauges(store: Store) -> None:
    """Set the gauges about the store to its current values: users, dead letters, and Redis's memory and persistence.

    Raises :class:`StoreUnavailable` if the values cannot be read.
    """
    infos, people, letters = await asyncio.gather(read_infos(store), store.users.count(), store.dead_letters.count())
    DEAD_LETTERS.set(letters)
    USERS.set(people)
    REDIS_MEMORY.set(sum(int(info.get("used_memory", 0)) for info in infos))
    REDIS_MEMORY_SHARE.set(max(map(memory_share, infos), default=0.0))
    REDIS_PERSISTENCE_FAILURES.set(sum(not is_persistent(info) for info in infos))


async def read_infos(store: Store) -> list[RedisInfo]:
    """Return the fields of the INFO reply for each Redis server.

    The servers are the standalone Redis, or the primaries of a Redis Cluster that respond. Raises
    :class:`StoreUnavailable` if no server responds.
    """
    primaries = store.redis.primaries()
    if not primaries:
        return [_parse(await store.redis.call("INFO"))]
    replies = await asyncio.gather(
        *(store.redis.call_on_node(node, "INFO") for node in primaries), return_exceptions=True
    )
    for reply in replies:
        if isinstance(reply, BaseException) and not isinstance(reply, StoreUnavailable):
            raise reply
    return [_parse(reply) for reply in replies if not isinstance(reply, BaseException)]


def memory_share(info: RedisInfo) -> float:
    """Return the fraction of ``maxmemory`` that a Redis server uses; 0 if ``maxmemory`` is not set."""
    most = int(info.get("maxmemory", 0))
    return int(info.get("used_memory", 0)) / most if most else 0.0


def is_persistent(info: RedisInfo) -> bool:
    """Return whether a Redis server has an append-only file whose last write and last rewrite succeeded."""
    written = (info.get("aof_last_write_status", "ok"), info.get("aof_last_bgrewrite_status", "ok"))
    return info.get("aof_enabled") == "1" and written == ("ok", "ok")


def _parse(info: Any) -> RedisInfo:
    if isinstance(info, dict):
        return {str(name): str(value) for name, value in info.items()}
    lines = (line for line in info.decode().splitlines() if ":" in line)
    return dict(line.split(":", 1) for line in lines)
