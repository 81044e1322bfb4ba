"""Tables of the entries that searches can find: those that public channels have published in the last three days.

A channel's table is a field of the channel's Redis hash. Search results show an entry only if the table lists it. Edits
and withdrawals of entries thus take effect at once, even if the search index is outdated. A lost table can be computed
again from the channel's versions (:meth:`EntryTable.after`).

Channels that are not public have no table.
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
"""How long searches can find an entry after it was detected (s)."""
MAX_VERSION_ENTRIES: Final = 100
"""Maximum number of new entries, and of edited entries, that a table lists for one version."""
MAX_ENTRIES: Final = 1_000
"""Maximum number of entries in a channel's table. If there are more, the oldest are removed."""

_POSTING_TICK_S: Final = 16
_KEY_BYTES: Final = 6
_FIELD: Final = "entries"


class ListedEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry that searches can find.

    - ``key``: digest of the key that identifies the entry within its channel.
    - ``version``: the channel's version that contains the entry's present text.
    - ``position``: index of the entry in the changes of this version.
    - ``expires_s``: time from which searches no longer find the entry (Unix s).
    """

    key: bytes
    version: int
    position: int
    expires_s: int

    def registered_until_s(self, now_s: float) -> float:
        """Return when a registration or withdrawal of this entry expires in the search index (Unix s).

        ``now_s`` is the time at which the entry is registered or withdrawn (Unix s). If the index contains both a
        registration and a withdrawal of an entry, the one that expires later is valid. The result therefore increases
        with ``now_s``. It exceeds ``expires_s`` by at most a few hours.
        """
        # If the directory has both a registration and a withdrawal of this entry, the one with the later expiry
        # applies.
        return self.expires_s + max(0.0, now_s - self.expires_s + WINDOW_S) // _POSTING_TICK_S

    def name(self, cid: ChannelId) -> str:
        """Return the id that the search index uses for this entry of the channel ``cid``; see :func:`entry_name`."""
        return f"{cid}/{urlsafe_b64encode(self.key).decode()}"


class EntryTable(msgspec.Struct, frozen=True, array_like=True):
    """The entries of a channel that searches can find, oldest first.

    ``checked_s`` is the last time at which the search index was known to contain all these entries (Unix s).
    """

    entries: tuple[ListedEntry, ...] = ()
    checked_s: int = 0

    def after(self, delta: Delta, now_s: float) -> "EntryTable":
        """Return a copy of the table that includes the changes in ``delta``.

        New entries are added. Edited entries refer to their new text. Entries that have expired by ``now_s`` (Unix s)
        are removed. If the table already includes ``delta``, its changes have no further effect.
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
    """The text of an entry that searches can find.

    ``detected_s`` is when the entry's present text was detected (Unix s).
    """

    entry: Entry
    detected_s: float


def entry_positions(delta: Delta) -> list[int]:
    """Return the indices in ``delta.changes`` of the new and edited entries that searches may find, in ascending order.

    At most ``MAX_VERSION_ENTRIES`` new entries and as many edited entries are included. Changed lines of pages are left
    out. The result is empty if ``delta`` is a notice, or is not delivered to subscribers.
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
    """Return the id that the search index uses for an entry. Edits of the entry do not change it.

    ``entry_key`` identifies the entry within the channel ``cid``.
    """
    return f"{cid}/{urlsafe_b64encode(_digest(entry_key)).decode()}"


class PublicEntries:
    """Reads and replaces the channels' tables of entries that searches can find.

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    def __init__(self, redis: RedisClient, channels: Channels) -> None:
        """Create the repository. It reads the texts of entries from ``channels``."""
        self._redis = redis
        self._channels = channels

    async def tables(self, cids: Sequence[ChannelId]) -> list[EntryTable | None]:
        """Return the tables of channels in the order of ``cids``; None for each channel without a table."""
        found = await self._redis.call_many([("HGET", keys.channel(cid), _FIELD) for cid in cids])
        return [_decode(packed) if packed else None for packed in found]

    async def listed_or_public(self, cids: Sequence[ChannelId]) -> list[tuple[bool, bool]]:
        """Return a pair (is listed, is public) for each channel, in the order of ``cids``.

        A channel is listed if an admin wants it to be polled even without subscribers. It is public if it has a table
        of entries that searches can find.
        """
        found = await self._redis.call_many([("HMGET", keys.channel(cid), "listed", _FIELD) for cid in cids])
        return [(listed == b"1", table is not None) for listed, table in found]

    async def replace(self, cid: ChannelId, before: EntryTable | None, after: EntryTable | None) -> bool:
        """Replace a channel's table with ``after`` if it equals ``before``; return whether it was replaced.

        If ``before`` is None, the channel must have no table. If ``after`` is None, the table is deleted.
        """
        old, new = (b"" if table is None else msgspec.msgpack.encode(table) for table in (before, after))
        script_keys = (keys.channel(cid),)
        return bool(await self._redis.run_script("channel_set_field", script_keys, _FIELD, new, old))

    async def texts(self, cid: ChannelId, listed: Sequence[ListedEntry]) -> dict[ListedEntry, PublicEntry]:
        """Return a mapping from the entries in ``listed`` to their texts.

        All these entries must belong to the channel ``cid``. Entries are left out if their versions are no longer
        stored.
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
        """Return a mapping from ids in the search index (:func:`entry_name`) to the entries with these ids.

        ``names`` contains the ids. Entries that have expired by ``now_s`` (Unix s) or were withdrawn are left out. The
        caller has to check that the channels are public.
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
