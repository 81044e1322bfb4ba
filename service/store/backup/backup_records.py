"""The records that a backup consists of: Redis keys, in a format that does not depend on Redis's version."""

from typing import Any, Literal

import msgspec

from service.model import ChannelId, UserId
from service.store.client import keys

RedisType = Literal["string", "hash", "set", "zset", "list", "stream"]


class StoredKey(msgspec.Struct, frozen=True, array_like=True):
    """A Redis key and its content.

    - ``expires_ms``: when the key expires (Unix time in ms); 0 if it does not expire.
    - ``last_id``: for a stream, the last entry id that the stream has assigned; "" for other types.
    - ``items``: the content.

    The form of ``items`` depends on the type of the key:

    - string: the value
    - set, list: the members
    - hash: field, value, field, value, and so on
    - zset (sorted set): member, score, member, score, and so on
    - stream: for each entry, its id, then the total count of its field names and values, then field, value, field,
      value, and so on
    """

    key: str
    type: RedisType
    expires_ms: int
    last_id: str
    items: list[bytes]


class FanOutRecord(msgspec.Struct, frozen=True, array_like=True, tag="fan-out"):
    """States which versions of channels had been queued for subscribers when the backup began.

    ``versions`` maps each channel to the last version that had been queued for all its subscribers.
    """

    versions: dict[ChannelId, int]


class UserRecord(msgspec.Struct, frozen=True, array_like=True, tag="user"):
    """All keys of one user that belong in a backup. They are read atomically.

    If a backup contains several records of a user, the last one counts.
    """

    uid: UserId
    keys: list[StoredKey]


class ChannelRecord(msgspec.Struct, frozen=True, array_like=True, tag="channel"):
    """All keys of one channel that belong in a backup. They are read atomically.

    If a backup contains several records of a channel, the last one counts.
    """

    cid: ChannelId
    keys: list[StoredKey]


class KeyRecord(msgspec.Struct, frozen=True, array_like=True, tag="key"):
    """A key that belongs in a backup, but belongs neither to a user nor to a channel.

    If a backup contains several records of a key, the restoration combines their contents.
    """

    key: StoredKey


Record = FanOutRecord | UserRecord | ChannelRecord | KeyRecord


class BackupOrigin(msgspec.Struct, frozen=True):
    """Identifies the store from which a backup was made, and when the backup began.

    - ``fleet``: id of the fleet that uses the store; "" if the store has no fleet id.
    - ``counter``: value of the store's counter, which Coronet's processes increment while they run; 0 if there is none.
    - ``schema``: version of the format of the stored data.
    - ``began_s``: when the backup began (Unix s, according to Redis's clock).
    """

    fleet: str
    counter: int
    schema: int
    began_s: float


def stored_keys(names: list[str], reply: list[list[Any]]) -> list[StoredKey]:
    """Return the keys in ``names`` that exist, with their contents.

    ``reply`` is the reply of the script ``backup_read``: for each name in ``names``, in order, the key's type, expiry
    time, last stream entry id, and items.
    """
    return [
        StoredKey(name, kind.decode(), int(expires_ms), last_id.decode(), items)
        for name, (kind, expires_ms, last_id, items) in zip(names, reply, strict=True)
        if kind != b"none"
    ]


def check_record(record: Record) -> None:
    """Check that a record of a backup contains only keys that belong in it.

    Raises ``ValueError`` if the record violates one of these rules:

    - A user's record contains only this user's keys.
    - A channel's record contains only this channel's keys. The first one is the channel's Redis hash.
    - No record contains the store's identity, or the key ``RESTORED_FANOUT``, which exists only during a restoration.
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
