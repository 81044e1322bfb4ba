"""Administration of users: admins can list, suspend, limit and erase them."""

import asyncio
import time
from collections.abc import Sequence

import msgspec

from service.model import UserId
from service.net.sites_and_networks import domain_of_jid
from service.store.client import keys
from service.store.client.redis_client import RedisClient
from service.store.coordination.host_blocklist import BlockedHosts
from service.store.delivery.outbox import Outbox
from service.store.people.erasure import Erasure


class Person(msgspec.Struct, frozen=True):
    """A user who has written to a bot, or who was erased and still has restrictions set by admins.

    - ``subscriptions``, ``watches``: how many subscriptions and saved searches the user has.
    - ``suspended``: True if an admin has suspended the user. Nothing is then queued for the user, and the user's
      messages are not answered.
    - ``most_subscriptions``: the user's maximum number of subscriptions, set by an admin; None if the general maximum
      in the settings applies.
    - ``queued``: how many items are waiting for delivery.
    - ``in_flight``: how many messages are being sent.
    - ``waiting_since_s``: when the oldest waiting item was queued (Unix time in seconds); None if no item is queued.
    - ``receipts``: whether the user's client sends receipts (XEP-0184).
    - ``blocked_domain``: the blocked domain to which the user belongs; "" if there is none. Users of a blocked domain
      are treated as suspended.
    """

    id: UserId
    jid: str
    subscriptions: int
    watches: int
    suspended: bool
    most_subscriptions: int | None
    queued: int
    in_flight: int
    waiting_since_s: float | None
    receipts: bool
    blocked_domain: str = ""


class People:
    """All users who have ever written to a bot. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, redis: RedisClient, erasure: Erasure, outbox: Outbox, blocked_domains: BlockedHosts) -> None:
        self._redis = redis
        self._blocked_domains = blocked_domains
        self._erasure = erasure
        self._outbox = outbox

    async def ids(self) -> list[UserId]:
        """Return the sorted ids of all users, including erased users who still have restrictions."""
        known, restricted = await self._redis.call_many(
            [("SMEMBERS", keys.USERS), ("ZRANGEBYSCORE", keys.ERASED_USERS_WITH_RESTRICTIONS, int(time.time()), "+inf")]
        )
        return sorted(uid.decode() for uid in {*known, *restricted})

    async def jids(self, uids: Sequence[UserId]) -> list[str]:
        """Return the bare JID of each user, in order; "" for an unknown user."""
        found = await self._redis.call_many(
            [("HGET", key, "jid") for uid in uids for key in (keys.user(uid), keys.restrictions(uid))]
        )
        return [(jid or restricted or b"").decode() for jid, restricted in zip(found[::2], found[1::2], strict=True)]

    async def get_many(self, uids: Sequence[UserId]) -> list[Person | None]:
        """Return the users in the order of ``uids``, with None for each unknown user."""
        people = await asyncio.gather(*map(self._read, uids))
        domains = [domain_of_jid(each.jid) if each else "" for each in people]
        blocked = await self._blocked_domains.matching(domains)
        return [
            msgspec.structs.replace(each, blocked_domain=name) if each else None
            for each, name in zip(people, blocked, strict=True)
        ]

    async def _read(self, uid: UserId) -> Person | None:
        """Return a user without looking up ``blocked_domain``, which is left empty; None for an unknown user."""
        replies = await self._redis.call_many(
            [
                ("HMGET", keys.user(uid), "jid", "receipts"),
                ("HMGET", keys.restrictions(uid), "jid", "suspended", "most_subscriptions"),
                ("HLEN", keys.user_index(uid)),
                ("HLEN", keys.saved_searches(uid)),
                ("XLEN", keys.outbox(uid)),
                ("HLEN", keys.in_flight(uid)),
                ("XRANGE", keys.outbox(uid), "-", "+", "COUNT", 1),
            ]
        )
        (known, receipts), (restricted, suspended, most), subscriptions, watches, queued, in_flight, oldest = replies
        jid = known or restricted
        if jid is None:
            return None
        return Person(
            id=uid,
            jid=jid.decode(),
            subscriptions=subscriptions,
            watches=watches,
            suspended=suspended == b"1",
            most_subscriptions=int(most) if most else None,
            queued=queued,
            in_flight=in_flight,
            waiting_since_s=int(oldest[0][0].partition(b"-")[0]) / 1000 if oldest else None,
            receipts=receipts == b"1",
        )

    async def get(self, uid: UserId) -> Person | None:
        """Return a user; None if the id is unknown."""
        return (await self.get_many([uid]))[0]

    async def set_suspended(self, uid: UserId, *, suspended: bool) -> bool:
        """Suspend a user, or end the suspension; return False for an unknown user."""
        done = await self._set(uid, "suspended", "1" if suspended else "")
        if done:
            await self._outbox.wake_delivery([uid])
        return done

    async def set_max_subscriptions(self, uid: UserId, max_count: int | None) -> bool:
        """Set a user's maximum number of subscriptions; return False for an unknown user.

        If ``max_count`` is None, the maximum in the settings applies.
        """
        return await self._set(uid, "most_subscriptions", "" if max_count is None else str(max_count))

    async def erase(self, uid: UserId) -> bool:
        """Erase a user, including restrictions set by admins and usage counts; return False for an unknown user."""
        (jid,) = await self.jids([uid])
        if jid:
            limits = (keys.restrictions(uid), *(keys.usage_count(uid, what) for what in keys.USAGE_KINDS))
            await self._redis.call_many([("DEL", *limits), ("ZREM", keys.ERASED_USERS_WITH_RESTRICTIONS, uid)])
            await self._erasure.erase(jid)
        return bool(jid)

    async def _set(self, uid: UserId, field: str, value: str) -> bool:
        script_keys = (keys.user(uid), keys.restrictions(uid))
        return bool(await self._redis.run_script("user_restrict", script_keys, field, value))
