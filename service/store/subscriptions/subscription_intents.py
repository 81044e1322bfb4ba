"""Intents: notes about subscription changes in progress, used to complete them after a crash (guarantee I5).

A change to a subscription takes three steps:

1. One script changes the user's list of subscriptions and writes an intent.
2. The channel's list of subscribers is updated.
3. The intent is deleted.

If a process dies in between, another process completes the change (:meth:`SubscriptionIntents.replay`).
"""

import asyncio
import time
from math import inf

from service.feeds.entries.duplicate_articles import hash_version
from service.feeds.entries.version_parts import VersionParts
from service.model import ChannelId, UserId
from service.store.channels.channels import Channels
from service.store.client import keys
from service.store.client.redis_client import RedisClient
from service.store.client.worklists import Worklist, unique_timestamp
from service.store.delivery.outbox import Outbox
from service.store.subscriptions.channel_index import ChannelIndex
from service.store.subscriptions.user_index_records import index_field, parse_subscription

_INTENT_TIMEOUT_S = 5.0
_CONCURRENT_REPLAYS = 100


class SubscriptionIntents:
    """Completes unfinished changes to subscriptions. Methods may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, redis: RedisClient, index: ChannelIndex, channels: Channels, outbox: Outbox) -> None:
        self._redis = redis
        self._worklist = Worklist(redis, keys.USERS_WITH_INTENTS)
        self._index = index
        self._channels = channels
        self._outbox = outbox

    async def replay(self, min_age_s: float = _INTENT_TIMEOUT_S) -> int:
        """Complete changes to subscriptions that a crash interrupted (guarantees I5 and I8).

        A change that began less than ``min_age_s`` seconds ago may still be in progress, and is left alone. Return the
        number of users for whom changes were completed.
        """
        now_ms = time.time() * 1000
        listed = await self._redis.call("ZRANGE", keys.USERS_WITH_INTENTS, 0, -1, "WITHSCORES")
        # A time in the future was recorded before the clock was set back.
        left = [(uid.decode(), at_ms) for uid, at_ms in listed if not 0 <= now_ms - at_ms < min_age_s * 1000]
        for start in range(0, len(left), _CONCURRENT_REPLAYS):
            some = left[start : start + _CONCURRENT_REPLAYS]
            await asyncio.gather(*(self.complete(uid, stamp) for uid, stamp in some))
        return len(left)

    async def begin(self, uid: UserId) -> float:
        """Record that a user may have unfinished changes; return the timestamp of this record.

        Call this before a change writes anything else, so that :meth:`replay` finds the change after a crash.
        """
        stamp = unique_timestamp()
        await self._redis.call("ZADD", keys.USERS_WITH_INTENTS, stamp, uid)
        return stamp

    async def complete(self, uid: UserId, stamp: float) -> None:
        """Complete all unfinished changes to a user's subscriptions; ``stamp`` is the result of :meth:`begin`."""
        pending = await self._redis.call("HGETALL", keys.intents(uid))
        # Additions first: a walk of the old channel's index during a move has to find all users who have not moved.
        for cid, intent in sorted(pending.items(), key=lambda change: change[1].startswith(b"del")):
            await self._complete_change(uid, cid.decode(), intent.decode())
        await self._worklist.remove({uid: stamp}, [uid])

    async def _complete_change(self, uid: UserId, cid: ChannelId, intent: str) -> None:
        what, seq = intent.split()
        if what == "del":
            await self._index.remove(cid, [(uid, int(seq))])
        elif not await self._index.add(cid, uid, int(seq)):
            await self._redis.call("HDEL", keys.user_index(uid), index_field(cid))
        elif what == "move":
            await self._queue_missed_versions(uid, cid)
        await self._redis.run_script("user_delete_intent", (keys.intents(uid),), cid, intent)

    async def _queue_missed_versions(self, uid: UserId, cid: ChannelId) -> None:
        """Queue, in order, the versions of a channel that a subscriber missed while being moved to the channel.

        A subscriber is moved when the old channel moves to this channel. The missed versions are those that were
        published before the user was added to this channel's list of subscribers.
        """
        held = await self._redis.call("HGET", keys.user_index(uid), index_field(cid))
        given = parse_subscription(cid, held).seen_version if held else inf
        while given < (newest := int(await self._redis.call("HGET", keys.channel(cid), "version") or 0)):
            for version in range(int(given) + 1, newest + 1):
                delta = await self._channels.delta(cid, version)
                content = VersionParts(news=None) if delta is None or delta.initial else hash_version(delta)
                await self._outbox.enqueue([uid], cid, version, time.time(), content)
            given = newest
