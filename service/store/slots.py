"""Which node of a Redis Cluster a command goes to: by the slot of its first key (all keys of a command share it)."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec
from redis.crc import key_slot

Value = str | bytes | int | float
Command = tuple[Value, ...]
Address = tuple[str, int]
"""Host and port."""

READS_ONLY = "-- reads only"
"""What the first line of a script says that writes nothing."""

_NO_KEY = frozenset({"PING", "INFO", "TIME", "CONFIG", "KEYS", "SCAN", "FLUSHALL", "CLUSTER", "SCRIPT", "DBSIZE"})
_READS = frozenset(
    {"EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "LLEN", "LRANGE", "MEMORY", "PTTL"}
    | {"SCARD", "SISMEMBER", "SMEMBERS", "STRLEN", "TTL", "XLEN", "XRANGE", "XREAD", "XREVRANGE"}
    | {"ZCARD", "ZLEXCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYLEX", "ZSCORE"}
)


def slot_of(command: Command) -> int | None:
    """Return the slot of a command's keys; None if any node can answer it."""
    name = str(command[0])
    if name in _NO_KEY:
        return None
    if name in ("EVAL", "EVALSHA"):
        key: Value | None = command[3] if command[2] else None
    elif name == "XREAD":
        key = command[command.index("STREAMS") + 1]
    else:
        key = command[1]
    return None if key is None else key_slot(key if isinstance(key, bytes) else str(key).encode())


def writes(command: Command) -> bool:
    """Say whether a command may change what the store holds."""
    name = str(command[0])
    return name not in _READS | _NO_KEY and not (name == "EVAL" and str(command[1]).startswith(READS_ONLY))


class SlotMap(msgspec.Struct):
    """The masters and their slots, as one node told; it can be out of date, which others then say."""

    starts: list[int]
    """The first slots of ranges, in order."""
    masters: list[Address]
    """Of each range."""
    copied: set[Address]
    """Masters with a replica that is up."""

    def master(self, slot: int) -> Address | None:
        """Return who has a slot, if that is known."""
        place = bisect_right(self.starts, slot) - 1
        return self.masters[place] if place >= 0 else None


def parse_slots(reply: Sequence[Sequence[Any]], asked: Address | None) -> SlotMap:
    """Read the reply to ``CLUSTER SLOTS`` of the node that was asked at this address."""
    ranges = sorted((int(first), _address(master, asked), bool(copies)) for first, _, master, *copies in reply)
    return SlotMap(
        [first for first, _, _ in ranges],
        [master for _, master, _ in ranges],
        {master for _, master, copied in ranges if copied},
    )


def _address(node: Sequence[Any], asked: Address | None) -> Address:
    host = node[0].decode() if node[0] else ""
    # A node that does not know how others reach it leaves its host out: it is the one that was asked.
    return (host if host not in ("", "?") or asked is None else asked[0]), int(node[1])
