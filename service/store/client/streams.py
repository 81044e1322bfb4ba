"""Functions for Redis streams that several repositories use: appending, waiting, and paging."""

from typing import Any, Final

from service.store.client.node_connections import Command, Value
from service.store.client.redis_client import MAX_BLOCK_S, RedisClient

Entry = tuple[str, dict[bytes, bytes]]
"""A stream entry: its id and its fields."""

_LENGTH: Final = 10_000


def append_command(stream: str, *fields: Value) -> Command:
    """Return a command that appends an entry to a stream and trims the stream to about 10,000 entries.

    ``fields`` consists of alternating names and values.
    """
    return ("XADD", stream, "MAXLEN", "~", _LENGTH, "*", *fields)


async def newest_id(redis: RedisClient, stream: str) -> str:
    """Return the id of the newest entry in a stream; "0-0" if the stream is empty."""
    newest = await redis.call("XREVRANGE", stream, "+", "-", "COUNT", 1)
    return newest[0][0].decode() if newest else "0-0"


async def wait_for_entries(redis: RedisClient, stream: str, after: str, count: int) -> list[Entry]:
    """Wait up to ``MAX_BLOCK_S`` seconds for entries after the id ``after``; return up to ``count`` such entries.

    The result is empty if no entry arrives in time.
    """
    block_ms = int(MAX_BLOCK_S * 1000)
    found = await redis.call_blocking("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", stream, after)
    return [_parse(entry) for _, entries in found or () for entry in entries]


async def read_page(redis: RedisClient, stream: str, before: str, count: int) -> tuple[list[Entry], str]:
    """Return (entries, position): one page of a stream, newest first, and the position of the next page.

    The page contains up to ``count`` entries. To read the next page, pass the returned position as ``before``. The
    position is "" if there are no further entries. To read the first page, pass "" as ``before``.
    """
    found = await redis.call("XREVRANGE", stream, f"({before}" if before else "+", "-", "COUNT", count + 1)
    page = [_parse(entry) for entry in found[:count]]
    return page, page[-1][0] if len(found) > count else ""


def _parse(entry: Any) -> Entry:
    return entry[0].decode(), entry[1]
