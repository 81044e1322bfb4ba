"""Users' saved searches, and a copy of all of them for the workers.

Each user's own list is authoritative. In addition, each saved search is copied to one of ``BUCKETS`` buckets, from
which workers load all saved searches. The copy is written first and deleted last. It may therefore outlive a search
that was removed, but is never missing. Matches of removed searches are dropped before delivery.
"""

import secrets
import zlib
from collections.abc import Sequence

import msgspec

from service.discovery.queries.saved_searches import (
    SavedSearch,
    SavedSearchId,
    SavedSearchIndex,
    SearchableEntry,
    SearchCondition,
)
from service.errors import LimitReached
from service.model import UserId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

BUCKETS = 16
_CHANGES_PER_READ = 1_000
_LOG_LENGTH = 10_000


class SavedSearches(RedisRepository):
    """Saved searches of all users. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def add(self, jid: str, condition: SearchCondition, text: str, max_count: int) -> SavedSearch:
        """Durably store a saved search of a user, and return it. ``text`` is the condition as the user wrote it.

        If the user already has a search with the same condition, that one is returned. Raises :class:`LimitReached` if
        the user already has ``max_count`` saved searches.
        """
        uid = keys.user_id(jid)
        for held in await self.of_user(jid):
            if held.condition == condition:
                return held
        watch = SavedSearch(f"{uid}/{secrets.token_hex(8)}", condition, text=text)
        await self._write(watch.id, condition)
        own = (keys.user(uid), keys.saved_searches(uid))
        number = await self._redis.run_script(
            "user_add_saved_search", own, jid, msgspec.msgpack.encode(watch), max_count
        )
        if not number:
            await self._write(watch.id, None)
            raise LimitReached(
                "You already have {most} saved searches, and that's the maximum. To make room, delete one with "
                "`unwatch #n`.",
                most=max_count,
            )
        await self._redis.call("SADD", keys.USERS, uid)
        return msgspec.structs.replace(watch, number=number)

    async def remove(self, jid: str, number: int) -> SavedSearch | None:
        """Remove and return the user's saved search with this number; return None if the user has no such search."""
        uid = keys.user_id(jid)
        held = await self._redis.call("HGET", keys.saved_searches(uid), number)
        if held is None:
            return None
        watch = msgspec.structs.replace(msgspec.msgpack.decode(held, type=SavedSearch), number=number)
        await self._redis.call("HDEL", keys.saved_searches(uid), number)
        await self._write(watch.id, None)
        return watch

    async def remove_all(self, uid: UserId) -> None:
        """Remove all saved searches of a user, and delete their conditions from the log of changes."""
        for held in _parse_saved_searches(await self._redis.call("HGETALL", keys.saved_searches(uid))):
            await self._write(held.id, None)
        own = f"{uid}/".encode()
        changes = await self._redis.call("XRANGE", keys.SAVED_SEARCH_LOG, "-", "+")
        if any(fields[b"i"].startswith(own) for _, fields in changes):
            # A worker that has not read all of the log finds it gone, and loads the buckets again.
            await self._redis.call("DEL", keys.SAVED_SEARCH_LOG)
        await self._redis.call("DEL", keys.saved_searches(uid))

    async def restore(self, packed: Sequence[bytes]) -> None:
        """Add saved searches from a backup to the copy from which workers load the searches of all users.

        Each item of ``packed`` is a :class:`SavedSearch` in msgpack, as stored in a user's own list. The users' own
        lists are not changed.
        """
        for watch in (msgspec.msgpack.decode(each, type=SavedSearch) for each in packed):
            await self._write(watch.id, watch.condition)

    async def of_user(self, jid: str) -> list[SavedSearch]:
        """Return a user's saved searches, sorted by number."""
        return _parse_saved_searches(await self._redis.call("HGETALL", keys.saved_searches(keys.user_id(jid))))

    async def by_owner(self, ids: Sequence[SavedSearchId]) -> dict[UserId, list[SavedSearch]]:
        """Return the saved searches with these ids, grouped by their owners. Ids that do not exist are omitted."""
        owners = list(dict.fromkeys(search_id.partition("/")[0] for search_id in ids))
        wanted, found = set(ids), dict[UserId, list[SavedSearch]]()
        for uid, held in zip(
            owners, await self._redis.call_many([("HGETALL", keys.saved_searches(uid)) for uid in owners]), strict=True
        ):
            own = [watch for watch in _parse_saved_searches(held) if watch.id in wanted]
            if own:
                found[uid] = own
        return found

    async def load(self) -> tuple[str, dict[SavedSearchId, SearchCondition]]:
        """Return (position, conditions): a position in the log of changes, and the conditions of all saved searches.

        ``conditions`` maps the id of each saved search to its condition, and reflects all changes up to ``position``.
        """
        newest = await self._redis.call("XREVRANGE", keys.SAVED_SEARCH_LOG, "+", "-", "COUNT", 1)
        position = newest[0][0] if newest else await self._log("", b"")
        held = await self._redis.call_many([("HGETALL", keys.saved_search_bucket(bucket)) for bucket in range(BUCKETS)])
        return position.decode(), {
            watch.decode(): _decode_condition(packed) for some in held for watch, packed in some.items()
        }

    async def changes(self, position: str) -> list[tuple[str, SavedSearchId, SearchCondition | None]] | None:
        """Return the next changes to saved searches after ``position`` in the log of changes.

        Each change is a tuple (position, id of the saved search, new condition); the condition is None if the search
        was removed. Return None if the log no longer contains all changes since ``position``; the caller must then call
        :meth:`load`.
        """
        since = await self._redis.call("XRANGE", keys.SAVED_SEARCH_LOG, position, "+", "COUNT", _CHANGES_PER_READ)
        if not since or since[0][0].decode() != position:
            return None
        return [
            (entry.decode(), fields[b"i"].decode(), _decode_condition(fields[b"s"]) if fields[b"s"] else None)
            for entry, fields in since[1:]
        ]

    async def _write(self, search_id: SavedSearchId, condition: SearchCondition | None) -> None:
        """Write a saved search to the copy that workers load, and append the change to the log.

        If ``condition`` is None, delete the search from the copy.
        """
        packed = msgspec.msgpack.encode(condition) if condition else b""
        bucket = keys.saved_search_bucket(zlib.crc32(search_id.encode()) % BUCKETS)
        await self._redis.call(*(("HSET", bucket, search_id, packed) if packed else ("HDEL", bucket, search_id)))
        await self._log(search_id, packed)

    async def _log(self, search_id: SavedSearchId, packed: bytes) -> bytes:
        """Append a change to a saved search to the log; return the change's position in the log.

        ``packed`` is the new condition, or empty if the search was removed.
        """
        entry = ("i", search_id, "s", packed)
        entry_id: bytes = await self._redis.call("XADD", keys.SAVED_SEARCH_LOG, "MAXLEN", "~", _LOG_LENGTH, "*", *entry)
        return entry_id


class SavedSearchMatcher:
    """Finds the saved searches that match an entry, after reading the latest changes to saved searches."""

    def __init__(self, saved_searches: SavedSearches) -> None:
        self._saved_searches = saved_searches
        self._index = SavedSearchIndex()
        self._position = ""

    async def match(self, entries: Sequence[SearchableEntry]) -> list[set[SavedSearchId]]:
        """Return, for each entry in order, the ids of the saved searches that match it.

        All searches that were added before this call are considered.
        """
        await self._refresh()
        return [self._index.match(entry) for entry in entries]

    async def _refresh(self) -> None:
        changed = await self._saved_searches.changes(self._position) if self._position else None
        while changed:
            for position, watch, condition in changed:
                if condition is None:
                    self._index.remove(watch)
                else:
                    self._index.put(watch, condition)
                self._position = position
            changed = await self._saved_searches.changes(self._position)
        if changed is None:
            index = SavedSearchIndex()
            self._position, held = await self._saved_searches.load()
            for watch, condition in held.items():
                index.put(watch, condition)
            self._index = index


def _parse_saved_searches(held: dict[bytes, bytes]) -> list[SavedSearch]:
    """Return a user's saved searches, sorted by number; ``held`` maps numbers to searches, as stored in Redis."""
    found = (
        msgspec.structs.replace(msgspec.msgpack.decode(watch, type=SavedSearch), number=int(number))
        for number, watch in held.items()
    )
    return sorted(found, key=lambda watch: watch.number)


def _decode_condition(packed: bytes) -> SearchCondition:
    found: SearchCondition = msgspec.msgpack.decode(packed, type=SearchCondition)
    return found
