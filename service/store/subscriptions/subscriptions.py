"""Subscriptions of users.

The *user index* lists the subscriptions of each user, and is authoritative. The *channel index* lists the subscribers
of each channel. Each change is made in three steps:

1. Write the user index, together with an *intent*: a note that the channel index must still be updated.
2. Update the channel index.
3. Delete the intent. Only then is the change acknowledged (guarantee I5).

After a crash, interrupted changes are completed from their intents
(:mod:`service.store.subscriptions.subscription_intents`).
"""

import asyncio
import time
from collections.abc import Sequence

from service.errors import LimitReached, NotSubscribed
from service.model import ChannelId, Subscription, UserId
from service.store.channels.channels import Channels
from service.store.client import keys
from service.store.client.data_loss_monitor import DataLossMonitor
from service.store.client.redis_client import RedisClient
from service.store.subscriptions.channel_index import ChannelIndex
from service.store.subscriptions.subscription_intents import SubscriptionIntents
from service.store.subscriptions.user_index_records import encode_timestamp, index_field, parse_subscription

_CONCURRENT_MOVES = 16


class Subscriptions:
    """Reads and changes the subscriptions of all users, in the user index and the channel index."""

    def __init__(
        self,
        redis: RedisClient,
        index: ChannelIndex,
        channels: Channels,
        intents: SubscriptionIntents,
        identity: DataLossMonitor,
    ) -> None:
        self._identity = identity
        self._redis = redis
        self._index = index
        self._channels = channels
        self._intents = intents

    async def subscribe(
        self, jid: str, cid: ChannelId, max_subscriptions: int | None = None
    ) -> tuple[Subscription, bool]:
        """Durably subscribe a user to a channel; return the subscription and whether it is new.

        If the channel has moved, the user is subscribed to its successor. ``max_subscriptions`` is the user's maximum
        number of subscriptions; None for no maximum. A maximum that an admin has set for this user takes precedence.

        Raises :class:`LimitReached` if the maximum is reached, and :class:`NotSubscribed` if the channel does not
        exist.
        """
        uid = keys.user_id(jid)
        stamp, floor, channel = await asyncio.gather(
            self._intents.begin(uid), self._register_user(uid), self._channels.resolve(cid)
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
        await self._intents.complete(uid, stamp)
        held = await self._redis.call("HGET", keys.user_index(uid), index_field(cid))
        if held is None:
            raise NotSubscribed("That channel was removed just now. Subscribe by its URL to add it again.")
        return parse_subscription(cid, held), bool(new)

    async def unsubscribe(self, jid: str, cid: ChannelId) -> bool:
        """Durably unsubscribe a user from a channel, and remove the channel's queued items (guarantee I3).

        Return False if the user was not subscribed.
        """
        return await self._unsubscribe(keys.user_id(jid), cid)

    async def _unsubscribe(self, uid: UserId, cid: ChannelId) -> bool:
        stamp = await self._intents.begin(uid)
        queued = (keys.outbox(uid), keys.in_flight(uid))
        other = (keys.preferences(uid), keys.last_sent_times(uid), keys.webhook_queue(uid))
        script_keys = (keys.user(uid), keys.user_index(uid), keys.intents(uid), *queued, *other)
        seq = await self._redis.run_script("user_unsubscribe", script_keys, cid)
        await self._intents.complete(uid, stamp)
        return bool(seq)

    async def end_all_of_user(self, uid: UserId) -> list[ChannelId]:
        """End all subscriptions of a user; return their channels."""
        ended = [field.hex() for field in await self._redis.call("HKEYS", keys.user_index(uid))]
        for cid in ended:
            await self._unsubscribe(uid, cid)
        await self._intents.complete(uid, await self._intents.begin(uid))
        return ended

    async def _register_user(self, uid: UserId) -> int:
        """Add a user to the list of all users; return the greatest change number of recently erased users, or 0.

        Each change by a user has a number (``seq``); a change with a greater number is newer. The numbers of a new
        user must begin above the result. If an erased user returns, delayed copies of old changes then have no
        effect.
        """
        _, floor = await self._redis.call_many([("SADD", keys.USERS, uid), ("GET", keys.SEQ_FLOOR)])
        return int(floor or 0)

    async def end_all_of_channel(self, cid: ChannelId) -> None:
        """End all subscriptions to a channel. The call is idempotent, and must be repeated if a crash interrupts it."""
        async for entries in self._index.pages(cid):
            for uid, _ in entries:
                await self._unsubscribe(uid, cid)
            await self._index.remove(cid, entries)

    async def move(self, cid: ChannelId, successor: ChannelId, joins_at: int) -> None:
        """Turn all subscriptions to a channel into subscriptions to its successor.

        Every version of the successor after version ``joins_at`` is queued once for each subscriber. A subscription
        keeps its number, and queued items stay queued. The call must be repeated if a crash interrupts it.
        """
        async for entries in self._index.pages(cid):
            for first in range(0, len(entries), _CONCURRENT_MOVES):
                some = entries[first : first + _CONCURRENT_MOVES]
                await asyncio.gather(*(self._move(uid, cid, successor, joins_at) for uid, _ in some))
                await self._index.remove(cid, some)

    async def _move(self, uid: UserId, cid: ChannelId, successor: ChannelId, joins_at: int) -> None:
        stamp = await self._intents.begin(uid)
        script_keys = (keys.user(uid), keys.user_index(uid), keys.intents(uid), keys.preferences(uid))
        await self._redis.run_script("user_move_subscription", script_keys, cid, successor, joins_at)
        await self._intents.complete(uid, stamp)

    async def of_user(self, jid: str) -> list[Subscription]:
        """Return a user's subscriptions, sorted by number.

        Raises :class:`StoreIdentityMismatch` if the store has lost data.
        """
        # The store's identity is verified before an empty list is returned.
        held = await self._redis.call("HGETALL", keys.user_index(keys.user_id(jid)))
        if not held:
            await self._identity.verify()
        found = [parse_subscription(field.hex(), record) for field, record in held.items()]
        return sorted(found, key=lambda subscription: subscription.number)

    async def numbers(self, pairs: Sequence[tuple[UserId, ChannelId]]) -> list[int | None]:
        """Return the number of the subscription for each pair (user id, channel id), in order.

        Users refer to their subscriptions by these numbers. A number is None if the user is not subscribed to the
        channel.
        """
        found = await self._redis.call_many([("HGET", keys.user_index(uid), index_field(cid)) for uid, cid in pairs])
        return [
            parse_subscription(cid, held).number if held else None for (_, cid), held in zip(pairs, found, strict=True)
        ]

    async def count(self, cid: ChannelId) -> int:
        """Return how many subscribers a channel has."""
        return (await self._index.count([cid]))[0]
