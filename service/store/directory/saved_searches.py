"""Standing queries: who watches for what.

The user's own list, in their slot, is the truth. A copy of each query is in one of a few buckets, from which workers
load all of them: it is written there first, and deleted last. So a bucket may hold too much, never too little, and a
query that ended is left out at the last step, in the user's slot, as with subscriptions.
"""

import secrets
import zlib
from collections.abc import Sequence

import msgspec

from service.discovery.saved_searches import (
    SavedSearch,
    SavedSearchId,
    SavedSearchIndex,
    SearchableEntry,
    SearchCondition,
)
from service.errors import LimitReached
from service.model import UserId
from service.store.client import keys
from service.store.client.connection import BatchedRepository

BUCKETS = 16
_CHANGES_AT_ONCE = 1_000
_LOG_LENGTH = 10_000


class SavedSearches(BatchedRepository):
    """Everybody's standing queries. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def add(self, jid: str, standing: SearchCondition, most: int) -> SavedSearch:
        """Keep a standing query, durably once this returns; the same one is kept once.

        Raises :class:`LimitReached` if there are ``most`` already.
        """
        uid = keys.user_id(jid)
        for held in await self.of_user(jid):
            if held.condition == standing:
                return held
        watch = SavedSearch(f"{uid}/{secrets.token_hex(8)}", standing)
        await self._put(watch.id, standing)
        own = (keys.user(uid), keys.saved_searches(uid))
        number = await self._redis.run_script("user_watch", own, jid, msgspec.msgpack.encode(watch), most)
        if not number:
            await self._put(watch.id, None)
            raise LimitReached(
                "You already have {most} saved searches, the maximum. `unwatch #n` makes room.", most=most
            )
        await self._redis.call("SADD", keys.USERS, uid)
        return msgspec.structs.replace(watch, number=number)

    async def remove(self, jid: str, number: int) -> SavedSearch | None:
        """End one; return it, None if there was none of this number."""
        uid = keys.user_id(jid)
        held = await self._redis.call("HGET", keys.saved_searches(uid), number)
        if held is None:
            return None
        watch = msgspec.structs.replace(msgspec.msgpack.decode(held, type=SavedSearch), number=number)
        await self._redis.call("HDEL", keys.saved_searches(uid), number)
        await self._put(watch.id, None)
        return watch

    async def remove_all(self, uid: UserId) -> None:
        """End all of a user's, and leave nothing of them in the log of changes."""
        for held in _numbered(await self._redis.call("HGETALL", keys.saved_searches(uid))):
            await self._put(held.id, None)
        own = f"{uid}/".encode()
        changes = await self._redis.call("XRANGE", keys.SAVED_SEARCH_LOG, "-", "+")
        if any(fields[b"i"].startswith(own) for _, fields in changes):
            # Who has not read all of it finds the log gone, and loads what there is.
            await self._redis.call("DEL", keys.SAVED_SEARCH_LOG)
        await self._redis.call("DEL", keys.saved_searches(uid))

    async def of_user(self, jid: str) -> list[SavedSearch]:
        """Return a person's standing queries, by number."""
        return _numbered(await self._redis.call("HGETALL", keys.saved_searches(keys.user_id(jid))))

    async def by_owner(self, watches: Sequence[SavedSearchId]) -> dict[UserId, list[SavedSearch]]:
        """Return whose standing queries these are, and each with its number; those that are no more are absent."""
        owners = list(dict.fromkeys(watch.partition("/")[0] for watch in watches))
        wanted, found = set(watches), dict[UserId, list[SavedSearch]]()
        for uid, held in zip(
            owners, await self._redis.call_many([("HGETALL", keys.saved_searches(uid)) for uid in owners]), strict=True
        ):
            own = [watch for watch in _numbered(held) if watch.id in wanted]
            if own:
                found[uid] = own
        return found

    async def load(self) -> tuple[str, dict[SavedSearchId, SearchCondition]]:
        """Return all of them, and a place in the log of changes after which there is nothing else to know."""
        newest = await self._redis.call("XREVRANGE", keys.SAVED_SEARCH_LOG, "+", "-", "COUNT", 1)
        place = newest[0][0] if newest else await self._log("", b"")
        held = await self._redis.call_many([("HGETALL", keys.saved_search_bucket(bucket)) for bucket in range(BUCKETS)])
        return place.decode(), {watch.decode(): _standing(packed) for some in held for watch, packed in some.items()}

    async def changes(self, place: str) -> list[tuple[str, SavedSearchId, SearchCondition | None]] | None:
        """Return what has changed after a place in the log, with places; None if that is forgotten."""
        since = await self._redis.call("XRANGE", keys.SAVED_SEARCH_LOG, place, "+", "COUNT", _CHANGES_AT_ONCE)
        if not since or since[0][0].decode() != place:
            return None
        return [
            (entry.decode(), fields[b"i"].decode(), _standing(fields[b"s"]) if fields[b"s"] else None)
            for entry, fields in since[1:]
        ]

    async def _put(self, watch: SavedSearchId, standing: SearchCondition | None) -> None:
        """Write a query into its bucket and the log of changes, or delete it if it is None."""
        packed = msgspec.msgpack.encode(standing) if standing else b""
        bucket = keys.saved_search_bucket(zlib.crc32(watch.encode()) % BUCKETS)
        await self._redis.call(*(("HSET", bucket, watch, packed) if packed else ("HDEL", bucket, watch)))
        await self._log(watch, packed)

    async def _log(self, watch: SavedSearchId, packed: bytes) -> bytes:
        entry = ("i", watch, "s", packed)
        place: bytes = await self._redis.call("XADD", keys.SAVED_SEARCH_LOG, "MAXLEN", "~", _LOG_LENGTH, "*", *entry)
        return place


class SavedSearchMatcher:
    """A worker's :class:`SavedSearchIndex`, brought up to date before it is asked."""

    def __init__(self, standings: SavedSearches) -> None:
        self._standings = standings
        self._matcher = SavedSearchIndex()
        self._place = ""

    async def match(self, subjects: Sequence[SearchableEntry]) -> list[set[SavedSearchId]]:
        """Return which standing queries each entry meets, those included that were put before this was called."""
        await self._refresh()
        return [self._matcher.match(subject) for subject in subjects]

    async def _refresh(self) -> None:
        changed = await self._standings.changes(self._place) if self._place else None
        while changed:
            for place, watch, standing in changed:
                if standing is None:
                    self._matcher.remove(watch)
                else:
                    self._matcher.put(watch, standing)
                self._place = place
            changed = await self._standings.changes(self._place)
        if changed is None:
            matcher = SavedSearchIndex()
            self._place, held = await self._standings.load()
            for watch, standing in held.items():
                matcher.put(watch, standing)
            self._matcher = matcher


def _numbered(held: dict[bytes, bytes]) -> list[SavedSearch]:
    """Return a person's standing queries, by number."""
    found = (
        msgspec.structs.replace(msgspec.msgpack.decode(watch, type=SavedSearch), number=int(number))
        for number, watch in held.items()
    )
    return sorted(found, key=lambda watch: watch.number)


def _standing(packed: bytes) -> SearchCondition:
    found: SearchCondition = msgspec.msgpack.decode(packed, type=SearchCondition)
    return found
