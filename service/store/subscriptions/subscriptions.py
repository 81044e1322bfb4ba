"""Subscriptions of users.

A change is acknowledged when the user index and the channel index have it, and completed after a crash (guarantee I5).
The user index, in the user's slot, is authoritative. A change writes it together with an *intent*, then updates the
channel index, then deletes the intent. :meth:`Subscriptions.replay_intents` completes changes that a crash has
interrupted.
"""

import asyncio
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from math import inf

from service.errors import LimitReached, NotSubscribed
from service.feeds.entries.duplicate_articles import hash_version
from service.feeds.entries.version_parts import VersionParts
from service.model import ChannelId, Subscription, UserId
from service.store.channels.channels import Channels
from service.store.client import keys
from service.store.client.data_loss_monitor import DataLossMonitor
from service.store.client.redis_client import RedisClient
from service.store.client.worklists import Worklist, unique_timestamp
from service.store.delivery.outbox import Outbox
from service.store.subscriptions.channel_index import ChannelIndex

_INTENT_TIMEOUT_S = 5.0
_CONCURRENT_MOVES = 16
_CONCURRENT_REPLAYS = 100


class Subscriptions:
    """Changes and reads subscriptions."""

    def __init__(
        self, redis: RedisClient, index: ChannelIndex, channels: Channels, outbox: Outbox, identity: DataLossMonitor
    ) -> None:
        self._identity = identity
        self._redis = redis
        self._worklist = Worklist(redis, keys.USERS_WITH_INTENTS)
        self._index = index
        self._channels = channels
        self._outbox = outbox

    async def subscribe(
        self, jid: str, cid: ChannelId, max_subscriptions: int | None = None
    ) -> tuple[Subscription, bool]:
        """Subscribe a user to a channel or its successor, durably; return the subscription and whether it is new.

        ``max_subscriptions`` is the user's maximum, None for no maximum; a maximum that an admin has set replaces it.
        Raises :class:`LimitReached`, and :class:`NotSubscribed` if the channel does not exist.
        """
        uid = keys.user_id(jid)
        stamp, floor, channel = await asyncio.gather(
            self._add_to_worklist(uid), self._register_user(uid), self._channels.resolve(cid)
        )
        cid, seen = (channel.id, channel.version) if channel else (cid, 0)
        script_keys = (keys.user(uid), keys.user_index(uid), keys.intents(uid), keys.restrictions(uid))
        given = (
            jid,
            cid,
            seen,
            encode_timestamp(time.time()),
            floor,
            "" if max_subscriptions is None else max_subscriptions,
        )
        new, *maximum = await self._redis.run_script("user_subscribe", script_keys, *given)
        if maximum:
            raise LimitReached("You've reached the maximum of {count} subscriptions.", count=maximum[0])
        await self._replay(uid, stamp)
        held = await self._redis.call("HGET", keys.user_index(uid), _index_field(cid))
        if held is None:
            raise NotSubscribed("That channel was removed just now. Subscribe by its URL to add it again.")
        return _parse_subscription(cid, held), bool(new)

    async def unsubscribe(self, jid: str, cid: ChannelId) -> bool:
        """Unsubscribe a user, durably. Afterwards nothing of the channel is queued for the user (guarantee I3).

        Return False if the user was not subscribed.
        """
        return await self._unsubscribe(keys.user_id(jid), cid)

    async def _unsubscribe(self, uid: UserId, cid: ChannelId) -> bool:
        stamp = await self._add_to_worklist(uid)
        queued = (keys.outbox(uid), keys.in_flight(uid))
        chosen = (keys.preferences(uid), keys.last_sent_times(uid))
        script_keys = (keys.user(uid), keys.user_index(uid), keys.intents(uid), *queued, *chosen)
        seq = await self._redis.run_script("user_unsubscribe", script_keys, cid)
        await self._replay(uid, stamp)
        return bool(seq)

    async def end_all_of_user(self, uid: UserId) -> None:
        """End all subscriptions of a user."""
        for field in await self._redis.call("HKEYS", keys.user_index(uid)):
            await self._unsubscribe(uid, field.hex())
        await self._replay(uid, await self._add_to_worklist(uid))

    async def _register_user(self, uid: UserId) -> int:
        """Register a user; return the number that the ``seq`` (counter of changes) of a new user has to exceed.

        A user may return after erasure. Changes from before the erasure, which may be repeated late, must not affect
        the new data.
        """
        _, floor = await self._redis.call_many([("SADD", keys.USERS, uid), ("GET", keys.SEQ_FLOOR)])
        return int(floor or 0)

    async def end_all_of_channel(self, cid: ChannelId) -> None:
        """End all subscriptions to a channel. The call is idempotent and has to be repeated after a crash."""
        async for entries in self._index.pages(cid):
            for uid, _ in entries:
                await self._unsubscribe(uid, cid)
            await self._index.remove(cid, entries)

    async def move(self, cid: ChannelId, successor: ChannelId, joins_at: int) -> None:
        """Turn all subscriptions to a channel into subscriptions to its successor.

        The call is idempotent and has to be repeated after a crash. A subscription keeps its number, and queued items
        stay queued. Every version of the successor after ``joins_at`` is queued once for each of the moved subscribers.
        """
        async for entries in self._index.pages(cid):
            for first in range(0, len(entries), _CONCURRENT_MOVES):
                some = entries[first : first + _CONCURRENT_MOVES]
                await asyncio.gather(*(self._move(uid, cid, successor, joins_at) for uid, _ in some))
                await self._index.remove(cid, some)

    async def _move(self, uid: UserId, cid: ChannelId, successor: ChannelId, joins_at: int) -> None:
        stamp = await self._add_to_worklist(uid)
        script_keys = (keys.user(uid), keys.user_index(uid), keys.intents(uid), keys.preferences(uid))
        await self._redis.run_script("user_move_subscription", script_keys, cid, successor, joins_at)
        await self._replay(uid, stamp)

    async def of_user(self, jid: str) -> list[Subscription]:
        """Return a user's subscriptions, sorted by number.

        Before an empty list is returned, the store's identity is verified. Raises :class:`StoreIdentityMismatch` if
        data was lost.
        """
        held = await self._redis.call("HGETALL", keys.user_index(keys.user_id(jid)))
        if not held:
            await self._identity.verify()
        found = [_parse_subscription(field.hex(), record) for field, record in held.items()]
        return sorted(found, key=lambda subscription: subscription.number)

    async def numbers(self, pairs: Sequence[tuple[UserId, ChannelId]]) -> list[int | None]:
        """Return, for each pair in order, the number of the user's subscription to the channel.

        The number is None if the user is not subscribed.
        """
        found = await self._redis.call_many([("HGET", keys.user_index(uid), _index_field(cid)) for uid, cid in pairs])
        return [
            _parse_subscription(cid, held).number if held else None for (_, cid), held in zip(pairs, found, strict=True)
        ]

    async def count(self, cid: ChannelId) -> int:
        """Return the number of subscribers of a channel."""
        return (await self._index.count([cid]))[0]

    async def replay_intents(self, min_age_s: float = _INTENT_TIMEOUT_S) -> int:
        """Complete changes of subscriptions that a crash interrupted (I5, I8); return the number of affected users.

        A change that began less than ``min_age_s`` seconds ago may still be in progress and is left alone.
        """
        now_ms = time.time() * 1000
        listed = await self._redis.call("ZRANGE", keys.USERS_WITH_INTENTS, 0, -1, "WITHSCORES")
        # A time in the future was recorded before the clock was set back.
        left = [(uid.decode(), at_ms) for uid, at_ms in listed if not 0 <= now_ms - at_ms < min_age_s * 1000]
        for start in range(0, len(left), _CONCURRENT_REPLAYS):
            some = left[start : start + _CONCURRENT_REPLAYS]
            await asyncio.gather(*(self._replay(uid, stamp) for uid, stamp in some))
        return len(left)

    async def _add_to_worklist(self, uid: UserId) -> float:
        """Add a user to the list of users who may have intents (incomplete changes), before any other write.

        Return the timestamp of the addition.
        """
        stamp = unique_timestamp()
        await self._redis.call("ZADD", keys.USERS_WITH_INTENTS, stamp, uid)
        return stamp

    async def _replay(self, uid: UserId, stamp: float) -> None:
        pending = await self._redis.call("HGETALL", keys.intents(uid))
        # Additions first: a walk of the old channel's index during a move has to find all users who have not moved.
        for cid, intent in sorted(pending.items(), key=lambda change: change[1].startswith(b"del")):
            await self._complete(uid, cid.decode(), intent.decode())
        await self._worklist.remove({uid: stamp}, [uid])

    async def _complete(self, uid: UserId, cid: ChannelId, intent: str) -> None:
        what, seq = intent.split()
        if what == "del":
            await self._index.remove(cid, [(uid, int(seq))])
        elif not await self._index.add(cid, uid, int(seq)):
            await self._redis.call("HDEL", keys.user_index(uid), _index_field(cid))
        elif what == "move":
            await self._catch_up(uid, cid)
        await self._redis.run_script("user_delete_intent", (keys.intents(uid),), cid, intent)

    async def _catch_up(self, uid: UserId, cid: ChannelId) -> None:
        """Queue, in order, the versions that a user who was moved to this channel has not received yet.

        Later versions are delivered as usual.
        """
        held = await self._redis.call("HGET", keys.user_index(uid), _index_field(cid))
        given = _parse_subscription(cid, held).seen_version if held else inf
        while given < (newest := int(await self._redis.call("HGET", keys.channel(cid), "version") or 0)):
            for version in range(int(given) + 1, newest + 1):
                delta = await self._channels.delta(cid, version)
                content = VersionParts(news=None) if delta is None or delta.initial else hash_version(delta)
                await self._outbox.enqueue([uid], cid, version, time.time(), content)
            given = newest


def _index_field(cid: ChannelId) -> bytes:
    """Return the field of the user index for a channel: see ``scripts/user_index.lua``."""
    return bytes.fromhex(cid)


def _parse_subscription(cid: ChannelId, record: bytes) -> Subscription:
    number, seq, seen, since, *paused = record.split()
    withheld_after = int(paused[0].rstrip(b"*")) if paused else None
    return Subscription(cid, int(number), int(seq), int(seen), _decode_timestamp_s(since), withheld_after)


def encode_timestamp(at_s: float) -> str:
    """Return a time (Unix s) as 6 characters of base64, which saves 32 bytes per user compared with 10 digits."""
    return urlsafe_b64encode(int(at_s).to_bytes(4)).decode().rstrip("=")


def _decode_timestamp_s(text: bytes) -> float:
    """Return the time (Unix s) of an encoded timestamp."""
    return float(int.from_bytes(urlsafe_b64decode(text + b"==")))
