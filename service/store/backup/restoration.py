"""Restoration of a backup into an empty store; see :mod:`service.store.backup`.

1. :meth:`StoreRestoration.begin` marks the store as refused, which stops Coronet's processes from using it.
2. :meth:`StoreRestoration.write` writes the backup's records.
3. :meth:`StoreRestoration.finish` derives the data that a backup does not contain, such as the lists of channels'
   subscribers. Then it marks the store as accepted, so that it can be used.

If a restoration is interrupted, it must be started again from the beginning.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from service.model import ChannelId, UserId
from service.store import Store
from service.store.backup.backup_records import (
    BackupOrigin,
    ChannelRecord,
    FanOutRecord,
    KeyRecord,
    Record,
    StoredKey,
    UserRecord,
)
from service.store.backup.export import scan_keys
from service.store.client import keys
from service.store.client.data_loss_guard import NEEDED_SCHEMA_VERSION, RESTORING
from service.store.client.node_connections import Command
from service.store.client.redis_client import script_command
from service.store.client.worklists import unique_timestamp

_FIRST_VERSION: Final = b"1"
_KEPT: Final = frozenset((keys.STORE_IDENTITY, keys.ERASED_USERS))


class StoreRestoration:
    """Writes a backup to a store. No other process may use the store meanwhile."""

    def __init__(self, store: Store) -> None:
        """Prepare to restore a backup into ``store``.

        ``store`` must have been opened with ``is_guarded=False``, because a guarded store rejects all commands during a
        restoration.
        """
        self._store = store
        self._redis = store.redis
        self._moved: list[ChannelId] = []
        """Dormant channels that have moved to a successor, but may still have subscribers in the backup."""

    async def is_empty(self) -> bool:
        """Return whether the store contains no keys of Coronet, apart from the store's identity."""
        async for names in scan_keys(self._redis, keys.ALL_KEYS):
            if any(name != keys.STORE_IDENTITY for name in names):
                return False
        return True

    async def begin(self) -> None:
        """Mark the store as refused, which stops Coronet's processes from using it, and delete Coronet's keys.

        Two keys are kept: the store's identity, and the list of erased users. The list is needed if this restoration is
        interrupted and started again.
        """
        await self._redis.call("HSET", keys.STORE_IDENTITY, "refused", RESTORING)
        async for names in scan_keys(self._redis, keys.ALL_KEYS):
            await self._redis.call_many([("UNLINK", name) for name in names if name not in _KEPT])

    async def write(self, records: Sequence[Record]) -> None:
        """Write records of a backup to the store.

        The caller must pass all records of the backup, in one or several calls, in the order in which
        :meth:`StoreExport.records` yielded them. Raises :class:`service.errors.StoreUnavailable` if Redis is
        unavailable.
        """
        for record in records:
            if isinstance(record, FanOutRecord):
                if record.versions:
                    fields = (part for pair in record.versions.items() for part in pair)
                    await self._redis.call("HSET", keys.RESTORED_FANOUT, *fields)
            elif isinstance(record, KeyRecord) and record.key.key == keys.ERASED_USERS:
                members = zip(record.key.items[::2], record.key.items[1::2], strict=True)
                await self._add_erased(dict(members))
            elif isinstance(record, KeyRecord):
                await self._redis.call(*_write_command([record.key], replace=False))
                if record.key.key == keys.SITE_RATES:
                    await self._write_site_rates(record.key)
        # The last record of a user or a channel counts.
        users = {record.uid: record.keys for record in records if isinstance(record, UserRecord)}
        channels = {record.cid: record.keys for record in records if isinstance(record, ChannelRecord)}
        await self._write_users(users)
        await self._write_channels(channels)

    async def finish(self, origin: BackupOrigin, erased: Mapping[UserId, int]) -> int:
        """Complete the restoration, so that Coronet's processes can use the store.

        A backup may still contain users who were erased after it began. They are erased again. The store gets the fleet
        id in this machine's identity file, or that of ``origin`` if the file does not exist.

        - ``origin``: identifies the store from which the backup was made.
        - ``erased``: maps each erased user to the time of the erasure (Unix s).

        Return how many users were erased again.
        """
        # First the data that a backup does not contain is derived, then the store is marked as accepted.
        await self._add_erased(erased)
        # Each user has an intent for each subscription, from which the channel index is written.
        await self._store.subscription_intents.replay(0.0)
        late = [uid for uid, at_s in erased.items() if at_s >= int(origin.began_s)]
        known = await self._redis.call_many([("SISMEMBER", keys.USERS, uid) for uid in late])
        again = [uid for uid, is_known in zip(late, known, strict=True) if is_known]
        if again:
            await self._redis.call("SADD", keys.USERS_BEING_ERASED, *again)
        await self._store.erasure.resume()
        await self._resume_moves()
        await self._redis.call("DEL", keys.RESTORED_FANOUT)
        await self._redis.call("HSET", keys.STORE_IDENTITY, "schema", origin.schema, "needs", NEEDED_SCHEMA_VERSION)
        await self._store.identity.accept(origin.fleet, origin.counter)
        return len(again)

    async def _add_erased(self, erased: Mapping[UserId, int] | Mapping[bytes, bytes]) -> None:
        """Add users to the list of erased users; ``erased`` maps each user to the time of the erasure (Unix s).

        If a user is already in the list, the later of the two times is kept.
        """
        given = [part for uid, at_s in erased.items() for part in (at_s, uid)]
        if given:
            await self._redis.call("ZADD", keys.ERASED_USERS, "GT", *given)

    async def _write_users(self, users: Mapping[UserId, Sequence[StoredKey]]) -> None:
        commands: list[Command] = []
        searches: list[bytes] = []
        for uid, owned in users.items():
            by_name = {each.key: each for each in owned}
            written = [each for each in owned if each.key != keys.intents(uid)]
            intents = _intents(by_name.get(keys.user_index(uid)), by_name.get(keys.intents(uid)))
            if intents:
                written.append(StoredKey(keys.intents(uid), "hash", 0, "", intents))
                commands.append(("ZADD", keys.USERS_WITH_INTENTS, unique_timestamp(), uid))
            commands.append(_write_command(written, replace=True))
            if keys.user(uid) in by_name:
                commands.append(("SADD", keys.USERS, uid))
            if any(by_name[name].items for name in (keys.outbox(uid), keys.in_flight(uid)) if name in by_name):
                commands.append(("ZADD", keys.USERS_WITH_DELIVERIES, unique_timestamp(), uid))
            messages, home = keys.inbound_messages(uid), keys.home_address(uid)
            if messages in by_name and by_name[messages].items:
                commands.append(("ZADD", keys.USERS_WITH_INBOUND, unique_timestamp(), uid))
            if {keys.pending_imports(uid), keys.import_counts(uid)} & by_name.keys() and home in by_name:
                commands.append(("HSET", keys.USERS_WITH_IMPORTS, uid, by_name[home].items[0]))
            if keys.saved_searches(uid) in by_name:
                searches += by_name[keys.saved_searches(uid)].items[1::2]
        await self._redis.call_many(commands)
        await asyncio.gather(*(self._store.saved_searches.restore([packed]) for packed in searches))

    async def _write_channels(self, channels: Mapping[ChannelId, Sequence[StoredKey]]) -> None:
        if not channels:
            return
        commands: list[Command] = []
        complete = await self._redis.call("HMGET", keys.RESTORED_FANOUT, *channels)
        for (cid, owned), fanned in zip(channels.items(), complete, strict=True):
            record, *others = owned
            fields = dict(zip(record.items[::2], record.items[1::2], strict=True))
            fields.pop(b"cursor", None)
            fields[b"fanned"] = fanned or _FIRST_VERSION  # a channel that was created during the backup
            if b"moved_to" in fields and b"dormant" in fields:
                self._moved.append(cid)
            items = [part for pair in fields.items() for part in pair]
            commands += [
                _write_command([StoredKey(record.key, "hash", 0, "", items), *others], replace=True),
                ("SADD", keys.channel_registry(cid[:2]), cid),
            ]
            if any(each.key == keys.hub_subscription(cid) for each in others):
                commands.append(("SADD", keys.hub_registry(cid[:2]), cid))
        await self._redis.call_many(commands)

    async def _write_site_rates(self, rates: StoredKey) -> None:
        pairs = zip(rates.items[::2], rates.items[1::2], strict=True)
        await self._redis.call_many([("SET", keys.site_rate(site.decode()), rate) for site, rate in pairs])

    async def _resume_moves(self) -> None:
        """Resume unfinished moves: reactivate channels that have moved but still have subscribers.

        The owner of such a channel then moves the remaining subscribers to the successor.
        """
        # A channel that has moved is dormant when its move is complete.
        counts = await self._store.channel_index.count(self._moved)
        left = [cid for cid, count in zip(self._moved, counts, strict=True) if count]
        await self._redis.call_many([("HDEL", keys.channel(cid), "dormant") for cid in left])


def _intents(user_index: StoredKey | None, recorded: StoredKey | None) -> list[bytes]:
    """Return a user's intents, which are notes about unfinished changes to the user's subscriptions.

    A restoration does not restore the channels' lists of subscribers. Instead, it creates an intent for each
    subscription. The channels' lists are written when the intents are processed.

    - ``user_index``: the user's list of subscriptions; None if there is none.
    - ``recorded``: the intents in the backup; None if there are none. If the backup contains an intent for a channel,
      it is used instead of a new one.

    The result is the content of a Redis hash: alternating channel ids and intents.
    """
    intents: dict[bytes, bytes] = {}
    if user_index is not None:
        for field, record in zip(user_index.items[::2], user_index.items[1::2], strict=True):
            intents[field.hex().encode()] = b"add " + record.split()[1]
    if recorded is not None:
        intents |= zip(recorded.items[::2], recorded.items[1::2], strict=True)
    return [part for pair in intents.items() for part in pair]


def _write_command(written: Sequence[StoredKey], *, replace: bool) -> Command:
    """Return a command that writes the keys in ``written``, which must all be in the same cluster slot.

    If ``replace`` is True, the keys' present contents are deleted first. Otherwise the new contents are added to them.
    """
    arguments: list[str | bytes | int] = []
    for each in written:
        arguments += [each.type, each.expires_ms, each.last_id, len(each.items), *each.items]
    return script_command("backup_write", [each.key for each in written], "1" if replace else "", *arguments)
