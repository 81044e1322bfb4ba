"""Records of a backup: contents of Redis keys in a form that does not depend on the version of Redis."""

from typing import Any, Literal

import msgspec

from service.model import ChannelId, UserId
from service.store.client import keys

RedisType = Literal["string", "hash", "set", "zset", "list", "stream"]


class StoredKey(msgspec.Struct, frozen=True, array_like=True):
    """A Redis key with its content.

    - ``expires_ms``: when the key expires (Unix time in ms); 0 if it does not expire.
    - ``last_id``: the last entry id that a stream has assigned; "" for other types.
    - ``items``: the content.

    The form of ``items`` depends on the type of the key:

    - string: the value
    - set, list: the members
    - hash: field, value, field, value, and so on
    - zset (sorted set): member, score, member, score, and so on
    - stream: for each entry, its id, the number of strings that follow, and these strings (field, value, and so on)
    """

    key: str
    type: RedisType
    expires_ms: int
    last_id: str
    items: list[bytes]


class FanOutRecord(msgspec.Struct, frozen=True, array_like=True, tag="fan-out"):
    """How far channels' versions had been queued for their subscribers when the backup began.

    ``versions`` maps each channel to its last version that had been queued for all subscribers.
    """

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
    """A durable key that belongs to no user or channel.

    If several records have the same key, their contents are combined.
    """

    key: StoredKey


Record = FanOutRecord | UserRecord | ChannelRecord | KeyRecord


class BackupOrigin(msgspec.Struct, frozen=True):
    """The store from which a backup was made.

    - ``began_s``: when the backup began (Unix s, Redis's clock).
    - ``fleet``: id of the fleet that uses the store; "" if the store has none.
    - ``counter``: counter that grows while programs use the store; 0 if the store has none.
    - ``schema``: version of the format of the stored data.
    """

    fleet: str
    counter: int
    schema: int
    began_s: float


def stored_keys(names: list[str], reply: list[list[Any]]) -> list[StoredKey]:
    """Return the existing keys among those called ``names``, with their contents.

    ``reply`` is the reply of the script ``backup_read``: type and content of each key, in the order of ``names``.
    """
    return [
        StoredKey(name, kind.decode(), int(expires_ms), last_id.decode(), items)
        for name, (kind, expires_ms, last_id, items) in zip(names, reply, strict=True)
        if kind != b"none"
    ]


def check_record(record: Record) -> None:
    """Raise ``ValueError`` if a record of a backup contains a key that is not allowed in it.

    - A user's record may contain only keys of this user.
    - A channel's record may contain only keys of this channel. The first one must be the channel's Redis hash.
    - No record may contain the store's identity, or the key in which a restoration stores the progress of deliveries.
    """
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
