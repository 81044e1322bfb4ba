"""Records of a backup: contents of Redis keys in a form that does not depend on the version of Redis."""

import math
import re
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from service.model import ChannelId, UserId
from service.store.client import keys

_STREAM_ID: Final = re.compile(rb"\d{1,20}-\d{1,20}")
_MAX_STREAM_PARTS: Final = 1_000
_MAX_TIME_MS: Final = 2**53

RedisType = Literal["string", "hash", "set", "zset", "list", "stream"]


class StoredKey(msgspec.Struct, frozen=True, array_like=True):
    """A Redis key with its content.

    ``expires_ms`` is the end of its life (Unix time in ms); 0 if it does not expire. ``last_id`` is the greatest id
    that a stream has ever had; "" for other types. ``items`` are, by type, the value, the members, or alternating
    fields and values; members and scores of a sorted set; for each entry of a stream its id, the number of its fields
    and values, and these.
    """

    key: str
    type: RedisType
    expires_ms: int
    last_id: str
    items: list[bytes]


class FanOutRecord(msgspec.Struct, frozen=True, array_like=True, tag="fan-out"):
    """The last version of each channel whose fan-out was complete when the backup began."""

    versions: dict[ChannelId, int]


class UserRecord(msgspec.Struct, frozen=True, array_like=True, tag="user"):
    """All durable keys of a user, at one moment. A later record of the same user replaces this one."""

    uid: UserId
    keys: list[StoredKey]


class ChannelRecord(msgspec.Struct, frozen=True, array_like=True, tag="channel"):
    """All durable keys of a channel, at one moment. A later record of the same channel replaces this one."""

    cid: ChannelId
    keys: list[StoredKey]


class KeyRecord(msgspec.Struct, frozen=True, array_like=True, tag="key"):
    """Another durable key. A later record of the same key adds to this one."""

    key: StoredKey


Record = FanOutRecord | UserRecord | ChannelRecord | KeyRecord


class BackupOrigin(msgspec.Struct, frozen=True):
    """The store from which a backup was made, and when it began (``began_s``, Unix s by Redis's clock).

    ``fleet`` is the id of the fleet, and ``counter`` the counter of the store's identity; "" and 0 if the store has
    none. ``schema`` is the version of the stored data.
    """

    fleet: str
    counter: int
    schema: int
    began_s: float


def stored_keys(names: list[str], reply: list[list[Any]]) -> list[StoredKey]:
    """Return the keys that exist among ``names``; ``reply`` is the reply of the script ``backup_read``."""
    return [
        StoredKey(name, kind.decode(), int(expires_ms), last_id.decode(), items)
        for name, (kind, expires_ms, last_id, items) in zip(names, reply, strict=True)
        if kind != b"none"
    ]


def check_record(record: Record) -> None:
    """Raise ``ValueError`` if no store has such a record, so that it cannot be written or would damage other keys."""
    match record:
        case UserRecord(uid, held):
            home = keys.user(uid)
        case ChannelRecord(cid, held):
            home = keys.channel(cid)
            if not held or held[0].key != home:
                raise ValueError(f"the channel {cid} has no record")
        case KeyRecord(key):
            held, home = [key], keys.ALL_KEYS.partition("*")[0]
        case FanOutRecord():
            return
    for each in held:
        if not each.key.startswith(home) or each.key in (keys.STORE_IDENTITY, keys.RESTORED_FANOUT):
            raise ValueError(f"the key {each.key} does not belong there")
        if not 0 <= each.expires_ms < _MAX_TIME_MS or not _is_well_formed(each):
            raise ValueError(f"the content of the key {each.key} is invalid")


def _is_well_formed(key: StoredKey) -> bool:
    items = key.items
    match key.type:
        case "string":
            return len(items) == 1
        case "hash":
            return len(items) % 2 == 0
        case "zset":
            return len(items) % 2 == 0 and all(map(_is_number, items[1::2]))
        case "stream":
            last_id = key.last_id.encode()
            return (not last_id or _STREAM_ID.fullmatch(last_id) is not None) and all(_are_entries(items))
        case _:
            return True


def _is_number(score: bytes) -> bool:
    try:
        return not math.isnan(float(score))
    except ValueError:
        return False


def _are_entries(items: list[bytes]) -> Iterator[bool]:
    """Yield, for each entry of a stream, whether it is complete."""
    at = 0
    while at < len(items):
        size = items[at + 1] if at + 1 < len(items) else b""
        count = int(size) if size.isdigit() and len(size) < len(str(_MAX_STREAM_PARTS)) + 1 else 0
        at += 2 + count
        yield (
            0 < count <= _MAX_STREAM_PARTS
            and count % 2 == 0
            and at <= len(items)
            and bool(_STREAM_ID.fullmatch(items[at - count - 2]))
        )
