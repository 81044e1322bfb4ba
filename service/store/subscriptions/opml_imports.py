"""Imports of OPML lists in the background: the feeds that are still to be added, and what became of the others.

A user has at most one import, which the user's bot carries out. A list that the user sends meanwhile is added to it. An
import that an admin has started is carried out by any console that has a lease on it.

A feed stays queued until its outcome is recorded. Removing the feed and recording the outcome is one step, so each feed
is counted once, even if a process is killed or two processes carry out the same import.
"""

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from typing import Final

import msgspec

from service.errors import CoronetError, LimitReached, UserError, to_fault
from service.feeds.opml_import import FailedFeed, ImportOutcome, ImportProgress, QueuedFeed
from service.feeds.opml_writer import MAX_OUTLINES, OpmlDocument
from service.model import UserId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

MAX_QUEUED_FEEDS: Final = MAX_OUTLINES
"""Maximum number of feeds that are queued in one import: as many as one OPML list may contain."""
MAX_CONSOLE_IMPORTS: Final = 10
"""Maximum number of imports of admins that have not ended."""
IMPORT_LEASE_S: Final = 10
"""Duration of a console's lease on an import, in seconds."""
_RESULTS_TTL_S: Final = 7 * 86_400
_MAX_RESULTS: Final = 20


class ImportJobs(RedisRepository, ABC):
    """Stored imports of one kind, each with an ``owner``. Every method may raise :class:`StoreUnavailable`."""

    @abstractmethod
    def _keys(self, owner: str) -> tuple[str, str, str]:
        """Return the keys of an import: its queued feeds, its counts, and its failed feeds."""

    async def progress(self, owner: str) -> ImportProgress | None:
        """Return how far an import is, or None if there is none."""
        feeds, counts, failed = self._keys(owner)
        found, *lengths = await self._redis.call_many([("HGETALL", counts), ("LLEN", feeds), ("LLEN", failed)])
        if not found and not any(lengths):
            return None
        fields = {"id": owner, "new": 0, "existing": 0, "started_s": time.time()}
        fields |= {name.decode(): value.decode() for name, value in found.items()}
        fields |= dict(zip(("pending", "failed"), lengths, strict=True))
        return msgspec.convert(fields, ImportProgress, strict=False)

    async def pending(self, owner: str) -> dict[bytes, QueuedFeed]:
        """Return the queued feeds in the order of the list, by the bytes with which :meth:`record` identifies them."""
        found = await self._redis.call("LRANGE", self._keys(owner)[0], 0, -1)
        return {packed: msgspec.msgpack.decode(packed, type=QueuedFeed) for packed in found}

    async def has_pending(self, owner: str) -> bool:
        """Return whether feeds are queued in an import."""
        return bool(await self._redis.call("EXISTS", self._keys(owner)[0]))

    async def record(self, owner: str, packed: bytes, outcome: ImportOutcome) -> bool:
        """Remove a feed from the queue and record its outcome; return False if it is not queued any more."""
        count, failed = ("new" if outcome is True else "existing"), b""
        if isinstance(outcome, CoronetError):
            feed = msgspec.msgpack.decode(packed, type=QueuedFeed)
            failed = msgspec.msgpack.encode(FailedFeed(to_fault(outcome), feed.url, feed.line))
        return bool(await self._redis.run_script("import_record", self._keys(owner), packed, count, failed))

    async def failed(self, owner: str) -> list[FailedFeed]:
        """Return the feeds that could not be added, in the order in which they failed."""
        found = await self._redis.call("LRANGE", self._keys(owner)[2], 0, -1)
        return [msgspec.msgpack.decode(packed, type=FailedFeed) for packed in found]

    async def stop(self, owner: str) -> bool:
        """Drop the queued feeds of an import, which then ends; return whether there were any."""
        return bool(await self._redis.call("DEL", self._keys(owner)[0]))

    async def _add(self, owner: str, ident: str, document: OpmlDocument) -> None:
        """Add the feeds and problems of ``document`` to an import, which gets the id ``ident`` if it is new.

        Raises :class:`LimitReached` if more than ``MAX_QUEUED_FEEDS`` feeds would be queued.
        """
        lines = document.lines or (0,) * len(document.feeds)
        pairs = zip(document.feeds, lines, strict=True)
        queued = [QueuedFeed(feed.url, feed.title, feed.page, feed.folder, line) for feed, line in pairs]
        problems = [FailedFeed(to_fault(UserError(text))) for text in document.problems]
        packed = [msgspec.msgpack.encode(each) for each in (*queued, *problems)]
        head = (MAX_QUEUED_FEEDS, time.time(), ident, len(queued))
        if not await self._redis.run_script("import_add", self._keys(owner), *head, *packed):
            raise LimitReached("Your last list is still being imported. Please send the next one when it's done.")


class UserImports(ImportJobs):
    """Each user's import. The owner is the user's id."""

    def _keys(self, owner: str) -> tuple[str, str, str]:
        return keys.pending_imports(owner), keys.import_counts(owner), keys.failed_imports(owner)

    async def add(self, jid: str, document: OpmlDocument, bot: str) -> None:
        """Queue the feeds of a list for a user. ``bot`` is the address of the bot that will add them.

        Raises :class:`LimitReached` if the user would then have more than ``MAX_QUEUED_FEEDS`` queued feeds.
        """
        uid = keys.user_id(jid)
        await self._redis.call("HSET", keys.USERS_WITH_IMPORTS, uid, bot)
        await self._add(uid, secrets.token_hex(4), document)

    async def users(self, bot: str) -> list[UserId]:
        """Return the users whose imports are carried out by the bot with the address ``bot``."""
        found = await self._redis.call("HGETALL", keys.USERS_WITH_IMPORTS)
        return [uid.decode() for uid, address in found.items() if address.decode() == bot]

    async def mark_shown(self, uid: UserId) -> bool:
        """Record that the user is sent a message about the progress; return False if the user was sent one before."""
        return bool(await self._redis.call("HSETNX", keys.import_counts(uid), "shown", 1))

    async def end(self, uid: UserId, bot: str) -> None:
        """Remove a user's import, unless feeds are queued. ``bot`` is the address of the bot that carries it out."""
        await self._redis.run_script("import_end", self._keys(uid))
        await self._redis.call("HDEL", keys.USERS_WITH_IMPORTS, uid)
        if await self.has_pending(uid):  # queued in the meantime
            await self._redis.call("HSET", keys.USERS_WITH_IMPORTS, uid, bot)


class ConsoleImports(ImportJobs):
    """The imports that admins have started. The owner is the import's id. The last results are kept for a week."""

    def _keys(self, owner: str) -> tuple[str, str, str]:
        return keys.console_import(owner)

    async def start(self, document: OpmlDocument) -> str:
        """Store an import, which a console then carries out; return its id.

        Raises :class:`LimitReached` if ``MAX_CONSOLE_IMPORTS`` imports have not ended.
        """
        found = await self.all()
        ended = [each.id for each in found if each.ended_s]
        if len(found) - len(ended) >= MAX_CONSOLE_IMPORTS:
            raise LimitReached(f"{MAX_CONSOLE_IMPORTS} imports are running. Wait until one ends, or stop one.")
        for old in ended[_MAX_RESULTS:]:
            await self._redis.call("DEL", *self._keys(old))
            await self._redis.call("ZREM", keys.CONSOLE_IMPORTS, old)
        ident = secrets.token_hex(8)
        await self._redis.call("ZADD", keys.CONSOLE_IMPORTS, time.time(), ident)
        await self._add(ident, ident, document)
        return ident

    async def all(self) -> list[ImportProgress]:
        """Return the imports that have not ended, and those whose results are kept, newest first."""
        idents = await self._redis.call("ZREVRANGE", keys.CONSOLE_IMPORTS, 0, -1)
        found = await asyncio.gather(*(self.progress(ident.decode()) for ident in idents))
        return [each for each in found if each is not None]

    async def claim(self) -> str | None:
        """Take a lease of ``IMPORT_LEASE_S`` seconds on an import that nobody carries out; return its id.

        Return None if there is no such import.
        """
        for each in await self.all():
            lease = ("SET", keys.console_import_lease(each.id), 1, "NX", "EX", IMPORT_LEASE_S)
            if not each.ended_s and await self._redis.call(*lease):
                return each.id
        return None

    async def renew(self, ident: str) -> None:
        """Renew the lease on an import."""
        await self._redis.call("EXPIRE", keys.console_import_lease(ident), IMPORT_LEASE_S)

    async def end(self, ident: str) -> None:
        """Record that an import has ended. The call may be repeated."""
        job = self._keys(ident)
        ended = ("HSET", job[1], "ended_s", time.time())
        await self._redis.call_many([ended, *(("EXPIRE", key, _RESULTS_TTL_S) for key in job)])
