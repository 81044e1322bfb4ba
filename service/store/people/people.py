"""People as admins see them: listed, found, suspended, bounded and forgotten; and invitations.

The code of an invitation is random and stored only as SHA-256, so that nobody can use what they find in Redis.
"""

import hashlib
import secrets
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from service.model import UserId
from service.store.client import keys
from service.store.client.connection import RedisClient, RedisRepository
from service.store.delivery.outbox import Outbox
from service.store.people.erasure import Erasure

_RESTRICTIONS = ("jid", "suspended", "most_subscriptions")
_COMMANDS = 7
"""How many commands read one person."""


class Person(msgspec.Struct, frozen=True):
    """A person who wrote to us, or was forgotten and is still restricted.

    ``most_subscriptions`` is what an admin set, None for what the settings say.

    ``waiting_since_s`` (Unix s) is when the oldest of what they have not been told was queued, None without any;
    ``receipts`` whether their client confirms what it has shown (XEP-0184). While ``suspended``, what is new for them
    is not kept, and nothing they say is answered.
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


class People:
    """Everybody who ever wrote to us. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, redis: RedisClient, forgetting: Erasure, outbox: Outbox) -> None:
        """Use this link to Redis; the others hold what people have."""
        self._redis = redis
        self._forgetting = forgetting
        self._outbox = outbox

    async def ids(self) -> list[UserId]:
        """Return everybody's id, in order."""
        known, restricted = await self._redis.call_many(
            [("SMEMBERS", keys.USERS), ("ZRANGEBYSCORE", keys.ERASED_USERS_WITH_RESTRICTIONS, int(time.time()), "+inf")]
        )
        return sorted(uid.decode() for uid in {*known, *restricted})

    async def jids(self, uids: Sequence[UserId]) -> list[str]:
        """Return bare JIDs in the order asked for; "" for somebody who is forgotten."""
        found = await self._redis.call_many(
            [("HGET", key, "jid") for uid in uids for key in (keys.user(uid), keys.restrictions(uid))]
        )
        return [(jid or restricted or b"").decode() for jid, restricted in zip(found[::2], found[1::2], strict=True)]

    async def get_many(self, uids: Sequence[UserId]) -> list[Person | None]:
        """Return people in the order asked for; None for somebody who is forgotten."""
        commands = [
            command
            for uid in uids
            for command in (
                ("HMGET", keys.user(uid), "jid", "receipts"),
                ("HMGET", keys.restrictions(uid), *_RESTRICTIONS),
                ("HLEN", keys.user_index(uid)),
                ("HLEN", keys.saved_searches(uid)),
                ("XLEN", keys.outbox(uid)),
                ("HLEN", keys.in_flight(uid)),
                ("XRANGE", keys.outbox(uid), "-", "+", "COUNT", 1),
            )
        ]
        replies = await self._redis.call_many(commands)
        own = (replies[_COMMANDS * place : _COMMANDS * (place + 1)] for place in range(len(uids)))
        return [_person(uid, each) for uid, each in zip(uids, own, strict=True)]

    async def get(self, uid: UserId) -> Person | None:
        """Return one person; None if there is none."""
        return (await self.get_many([uid]))[0]

    async def set_suspended(self, uid: UserId, *, suspended: bool) -> bool:
        """Have a person be told nothing and answered nothing, or again; False if there is no such person."""
        done = await self._set(uid, "suspended", "1" if suspended else "")
        if done:
            await self._outbox.wake_delivery([uid])
        return done

    async def set_max_subscriptions(self, uid: UserId, most: int | None) -> bool:
        """Bound a person's subscriptions apart from others'; None for what the settings say. False: no such person."""
        return await self._set(uid, "most_subscriptions", "" if most is None else str(most))

    async def erase(self, uid: UserId) -> bool:
        """End all that a person has with us and delete what we know of them; False if there was no such person.

        That includes what admins restrict: who writes again is a stranger.
        """
        (jid,) = await self.jids([uid])
        if jid:
            limits = (keys.restrictions(uid), *(keys.usage_count(uid, what) for what in keys.USAGE_KINDS))
            await self._redis.call_many([("DEL", *limits), ("ZREM", keys.ERASED_USERS_WITH_RESTRICTIONS, uid)])
            await self._forgetting.erase(jid)
        return bool(jid)

    async def _set(self, uid: UserId, field: str, value: str) -> bool:
        own = (keys.user(uid), keys.restrictions(uid))
        return bool(await self._redis.run_script("user_restrict", own, field, value))


def _person(uid: UserId, replies: Sequence[Any]) -> Person | None:
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


_CODE_BYTES = 9


class InvitationCodes(RedisRepository):
    """Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def create(self, uses: int, lasts_s: float) -> str:
        """Return the code of a new invitation, good for so many people and so long."""
        code = secrets.token_urlsafe(_CODE_BYTES)
        await self._redis.call("HSET", keys.INVITATION_CODES, _digest(code), f"{uses} {int(time.time() + lasts_s)}")
        return code

    async def accept(self, jid: str, code: str) -> bool:
        """Use a code up for one person; False if it is not good. For who is a guest already it need not be."""
        own = (keys.INVITATION_CODES, keys.GUESTS)
        uid = keys.user_id(jid)
        return bool(await self._redis.run_script("invite_accept", own, _digest(code), uid, int(time.time())))

    async def is_valid(self, code: str) -> bool:
        """Return whether an invitation would let somebody in."""
        found = await self._redis.call("HGET", keys.INVITATION_CODES, _digest(code))
        uses, until = map(int, (found or b"0 0").split())
        return uses > 0 and until > time.time()

    async def is_guest(self, jid: str) -> bool:
        """Return whether a person came with an invitation."""
        return bool(await self._redis.call("SISMEMBER", keys.GUESTS, keys.user_id(jid)))


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
