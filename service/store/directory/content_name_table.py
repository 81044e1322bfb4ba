"""The table of content names by their keys: cells refer to names by keys of 8 bytes.

The names are in ``BUCKETS`` hashes, which are so small that Redis keeps them as listpacks. A name is stored whenever it
is registered, and expires with its registration. Names are never removed earlier, so a process caches names that it has
read until they expire. Otherwise, the names of a popular AV-pair would be read with each query, and always from the
same nodes: additional replicas of the pair's matrix would not help them.
"""

import struct
import time
from collections.abc import Iterable, Sequence
from typing import TypeGuard

from cachetools import LRUCache

from service.discovery.av_pairs import ContentKind
from service.discovery.postings import NameKey, name_key
from service.store.client import keys
from service.store.client import redis_client as redis
from service.store.client.redis_client import RedisClient

BUCKETS = 1 << 12
_EXPIRY = struct.Struct(">I")
_CACHED_NAMES = 20_000


class ContentNameTable:
    """The names of one directory. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, client: RedisClient, about: ContentKind) -> None:
        """Create the table of the names of channels or of entries, as ``about`` states."""
        self._redis = client
        self._about = about
        self._cached: LRUCache[NameKey, bytes] = LRUCache(_CACHED_NAMES)

    async def put(self, names: Iterable[str], expires_s: int) -> None:
        """Store names until ``expires_s`` (Unix time), unless they are already stored for longer."""
        expiry = _EXPIRY.pack(expires_s)
        by_bucket: dict[str, list[redis.Value]] = {}
        for name in names:
            key = name_key(name)
            by_bucket.setdefault(self._bucket(key), []).extend((_field(key), expiry + name.encode()))
        await self._redis.call_many(
            [redis.script_command("names_put", (bucket,), *parts) for bucket, parts in by_bucket.items()]
        )

    async def resolve(self, name_keys: Sequence[NameKey]) -> dict[NameKey, str]:
        """Return names by their keys. Keys of names that are not registered any more are left out."""
        now_s = time.time()
        found = {key: value for key in name_keys if _is_current(value := self._cached.get(key), now_s)}
        missing = [key for key in name_keys if key not in found]
        held = await self._redis.call_many([("HGET", self._bucket(key), _field(key)) for key in missing])
        read = {key: value for key, value in zip(missing, held, strict=True) if _is_current(value, now_s)}
        self._cached.update(read)
        found |= read
        return {key: found[key][_EXPIRY.size :].decode() for key in name_keys if key in found}

    def _bucket(self, key: NameKey) -> str:
        return keys.names_bucket(self._about, key % BUCKETS)


def _is_current(value: bytes | None, now_s: float) -> TypeGuard[bytes]:
    return value is not None and _EXPIRY.unpack_from(value)[0] > now_s


def _field(key: NameKey) -> bytes:
    return key.to_bytes(8)
