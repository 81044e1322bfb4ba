"""Tables of the entries that searches can find: those of the last three days in public channels.

A channel's table is a field of the channel's Redis hash. An entry that the search index finds is shown only if the
table lists it. Edits and withdrawals thus take effect at once, even if the search index is outdated. A lost table can
be computed again from the channel's versions (:meth:`EntryTable.after`).

A channel that is not public has no table.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from service.model import ChannelId, Delta, Entry
from service.store.channels.channels import Channels
from service.store.client import keys
from service.store.client.redis_client import RedisClient

WINDOW_S: Final = 3 * 86_400
"""Time for which an entry can be found after it was detected."""
MAX_VERSION_ENTRIES: Final = 100
"""Maximum number of new entries of one version that the table lists."""
MAX_ENTRIES: Final = 1_000
"""Maximum number of entries in a channel's table. The latest are kept."""

_POSTING_TICK_S: Final = 16
_KEY_BYTES: Final = 6
_FIELD: Final = "entries"


class ListedEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry that searches can find.

    - ``key``: digest of the key that identifies the entry within its channel.
    - ``version``, ``position``: where the entry's present text is: a version, and an index among its changes.
    - ``expires_s``: time from which searches no longer find the entry (Unix s).
    """

    key: bytes
    version: int
    position: int
    expires_s: int

    def registered_until_s(self, now_s: float) -> float:
        """Return the expiry time for this entry's registration or withdrawal in the search index.

        ``now_s`` is the time of the registration or withdrawal. Both times are Unix s. A later registration expires
        later, at most a few hours after ``expires_s``.
        """
        # If the directory has both a registration and a withdrawal of this entry, the one with the later expiry
        # applies.
        return self.expires_s + max(0.0, now_s - self.expires_s + WINDOW_S) // _POSTING_TICK_S

    def name(self, cid: ChannelId) -> str:
        """Return the id under which the search index lists this entry of the channel ``cid`` (:func:`entry_name`)."""
        return f"{cid}/{urlsafe_b64encode(self.key).decode()}"


class EntryTable(msgspec.Struct, frozen=True, array_like=True):
    """The entries of a channel that searches can find, oldest first.

    ``checked_s`` is the last time when all of them were in the search index (Unix s).
    """

    entries: tuple[ListedEntry, ...] = ()
    checked_s: int = 0

    def after(self, delta: Delta, now_s: float) -> "EntryTable":
        """Return the table updated by the changes in ``delta``. Repeated updates by the same delta have no effect.

        New entries are added, and edited ones refer to their new text. Entries that have expired by ``now_s`` (Unix s)
        are removed.
        """
        listed = {entry.key: entry for entry in self.entries}
        expires_s = int(delta.detected_s) + WINDOW_S
        for position in entry_positions(delta):
            change = delta.changes[position]
            key = _digest(change.entry.key)
            known = listed.get(key)
            if known is not None and known.version >= delta.version:
                continue
            if change.kind == "addition":
                listed.pop(key, None)
                listed[key] = ListedEntry(key, delta.version, position, expires_s)
            elif known is not None:
                listed[key] = ListedEntry(key, delta.version, position, known.expires_s)
        left = [entry for entry in listed.values() if entry.expires_s > now_s]
        return EntryTable(tuple(left[-MAX_ENTRIES:]), self.checked_s)


class PublicEntry(msgspec.Struct, frozen=True):
    """An entry that searches can find, and the time ``detected_s`` when its present text was detected (Unix s)."""

    entry: Entry
    detected_s: float


def entry_positions(delta: Delta) -> list[int]:
    """Return the positions in ``delta.changes`` of new and edited entries, up to ``MAX_VERSION_ENTRIES`` of each kind.

    Two kinds of changes are left out: changes of a page, and entries that are older than the channel.
    """
    if delta.initial or delta.notice is not None:
        return []
    entries = [(position, change) for position, change in enumerate(delta.changes) if not change.line]
    new, edited = (
        [position for position, change in entries if change.kind == kind][:MAX_VERSION_ENTRIES]
        for kind in ("addition", "replacement")
    )
    return sorted((*new, *edited))


def entry_name(cid: ChannelId, entry_key: str) -> str:
    """Return the id under which the search index lists an entry. An edit of the entry does not change it.

    ``entry_key`` identifies the entry within the channel ``cid``.
    """
    return f"{cid}/{urlsafe_b64encode(_digest(entry_key)).decode()}"


class PublicEntries:
    """Tables of entries, by channel. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, redis: RedisClient, channels: Channels) -> None:
        """Create the repository; ``channels`` has the texts of entries."""
        self._redis = redis
        self._channels = channels

    async def tables(self, cids: Sequence[ChannelId]) -> list[EntryTable | None]:
        """Return the tables of channels, in the order of ``cids``; None for a channel without one."""
        found = await self._redis.call_many([("HGET", keys.channel(cid), _FIELD) for cid in cids])
        return [_decode(packed) if packed else None for packed in found]

    async def listed_or_public(self, cids: Sequence[ChannelId]) -> list[tuple[bool, bool]]:
        """Return, for each channel in order, two booleans: whether an admin has listed it, and whether it is public.

        A channel is public if it has a table of entries that searches can find.
        """
        found = await self._redis.call_many([("HMGET", keys.channel(cid), "listed", _FIELD) for cid in cids])
        return [(listed == b"1", table is not None) for listed, table in found]

    async def replace(self, cid: ChannelId, before: EntryTable | None, after: EntryTable | None) -> bool:
        """Replace a channel's table by ``after``; return False if the present table is not ``before``.

        None stands for no table. If the result is False, nothing is changed.
        """
        old, new = (b"" if table is None else msgspec.msgpack.encode(table) for table in (before, after))
        script_keys = (keys.channel(cid),)
        return bool(await self._redis.run_script("channel_set_field", script_keys, _FIELD, new, old))

    async def texts(self, cid: ChannelId, listed: Sequence[ListedEntry]) -> dict[ListedEntry, PublicEntry]:
        """Return the texts of the entries ``listed`` of a channel, by entry.

        Entries whose versions are no longer stored are left out.
        """
        if not listed:
            return {}
        deltas = await self._channels.deltas_of(cid, sorted({entry.version for entry in listed}))
        by_version = {delta.version: delta for delta in deltas}
        return {
            entry: PublicEntry(delta.changes[entry.position].entry, delta.detected_s)
            for entry in listed
            if (delta := by_version.get(entry.version)) and entry.position < len(delta.changes)
        }

    async def read(self, names: Iterable[str], now_s: float) -> dict[str, PublicEntry]:
        """Return the entries with these ids (:func:`entry_name`) that can be found at ``now_s`` (Unix s), by id.

        Entries that have expired or were withdrawn are left out. The caller has to check that the channels are public.
        """
        names = dict.fromkeys(names)
        cids = list(dict.fromkeys(name.partition("/")[0] for name in names))
        listed = [
            [entry for entry in table.entries if entry.name(cid) in names and entry.expires_s > now_s] if table else []
            for cid, table in zip(cids, await self.tables(cids), strict=True)
        ]
        texts = await asyncio.gather(*(self.texts(cid, entries) for cid, entries in zip(cids, listed, strict=True)))
        return {entry.name(cid): text for cid, found in zip(cids, texts, strict=True) for entry, text in found.items()}


_decode = msgspec.msgpack.Decoder(EntryTable).decode


def _digest(entry_key: str) -> bytes:
    return blake2b(entry_key.encode("utf-8", "replace"), digest_size=_KEY_BYTES).digest()
