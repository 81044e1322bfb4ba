"""Subscriptions: acknowledged only when both indexes have them, healed when a crash came in between.

The user index (in the user's slot) is the truth. A change is written there together with an
*intent*; then the channel index follows; then the intent is settled. :meth:`Subscriptions.heal`
replays what was left behind.

Nothing of a paused subscription is queued; it only stores the last version that was not withheld. So a pause costs
nothing however long it is, and at its end one item stands for all versions that came meanwhile.
"""

import asyncio
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from math import inf

import msgspec

from service.errors import LimitReached, NotSubscribed
from service.feeds.entries.version_parts import VersionParts, split_version
from service.model import ChannelId, Subscription, UserId
from service.store.channels.channels import Channels
from service.store.client import keys
from service.store.client.connection import BatchingClient, Command, RedisClient, script_command
from service.store.client.identity_monitor import IdentityMonitor
from service.store.delivery.outbox import Outbox
from service.store.subscriptions.channel_index import ChannelIndex

_LEFT_BEHIND_AFTER_S = 5.0
_PAGE = 500
_MOVED_AT_ONCE = 16


class Subscriptions:
    """Who wants to be told of what."""

    def __init__(
        self, redis: BatchingClient, index: ChannelIndex, channels: Channels, outbox: Outbox, identity: IdentityMonitor
    ) -> None:
        """Use this link to Redis; channels and outboxes are for subscriptions that move."""
        self._identity = identity
        self._redis = redis
        self._index = index
        self._channels = channels
        self._outbox = outbox

    async def subscribe(self, jid: str, cid: ChannelId, most: int | None = None) -> tuple[Subscription, bool]:
        """Subscribe, to the channel or the one that took over; durably once this returns. Also say whether it is new.

        A person has at most ``most`` subscriptions, or as many as an admin has set; None for any number. Raises
        :class:`LimitReached`, and :class:`NotSubscribed` if the channel does not exist (any more).
        """
        uid = keys.user_id(jid)
        stamp, floor, channel = await asyncio.gather(self._announce(uid), self._floor(uid), self._channels.resolve(cid))
        cid, seen = (channel.id, channel.version) if channel else (cid, 0)
        own = (keys.user(uid), keys.user_index(uid), keys.intents(uid), keys.restrictions(uid))
        given = (jid, cid, seen, encode_timestamp(time.time()), floor, "" if most is None else most)
        new, *found = await self._redis.run_script("user_subscribe", own, *given)
        if new < 0:
            raise LimitReached("You've reached the maximum of {count} subscriptions.", count=found[0])
        intents = found[1]
        await self._settle_all(uid, dict(zip(intents[::2], intents[1::2], strict=True)))
        _, held = await self._redis.call_many(
            [_unless_touched(uid, stamp), ("HGET", keys.user_index(uid), _place(cid))]
        )
        if held is None:
            raise NotSubscribed("That channel was removed just now. Subscribe by its URL to add it again.")
        return _subscription(cid, held), bool(new)

    async def unsubscribe(self, jid: str, cid: ChannelId) -> bool:
        """Unsubscribe, durably once this returns; nothing of the channel is queued any more.

        False if there was no such subscription.
        """
        return await self._unsubscribe(keys.user_id(jid), cid)

    async def _unsubscribe(self, uid: UserId, cid: ChannelId) -> bool:
        stamp = await self._announce(uid)
        queued = (keys.outbox(uid), keys.in_flight(uid))
        chosen = (keys.preferences(uid), keys.last_sent_times(uid))
        own = (keys.user(uid), keys.user_index(uid), keys.intents(uid), *queued, *chosen)
        seq = await self._redis.run_script("user_unsubscribe", own, cid)
        await self._replay(uid, stamp)
        return bool(seq)

    async def end_all_of_user(self, uid: UserId) -> None:
        """End every subscription of a user."""
        for place in await self._redis.call("HKEYS", keys.user_index(uid)):
            await self._unsubscribe(uid, place.hex())
        await self._replay(uid, await self._announce(uid))

    async def _floor(self, uid: UserId) -> int:
        """Take a user in; return above which number a newcomer's changes of mind begin.

        Somebody who comes back after all about them was forgotten must not be undone by what they ended before.
        """
        _, floor = await self._redis.call_many([("SADD", keys.USERS, uid), ("GET", keys.SEQ_FLOOR)])
        return int(floor or 0)

    async def end_all_of_channel(self, cid: ChannelId) -> None:
        """End every subscription to a channel; can be repeated after a crash."""
        cursor = ""
        while True:
            entries, cursor = await self._index.page(cid, cursor, _PAGE)
            for uid, _ in entries:
                await self._unsubscribe(uid, cid)
            await self._index.remove(cid, entries)
            if not cursor:
                return

    async def move(self, cid: ChannelId, successor: ChannelId, joins_at: int) -> None:
        """Turn every subscription to a channel into one to its successor; can be repeated after a crash.

        A subscription keeps its number, what is queued stays queued, and everything that the successor tells
        after version ``joins_at`` is queued once, however many versions it has by then.
        """
        cursor = ""
        while True:
            entries, cursor = await self._index.page(cid, cursor, _PAGE)
            for first in range(0, len(entries), _MOVED_AT_ONCE):
                some = entries[first : first + _MOVED_AT_ONCE]
                await asyncio.gather(*(self._move(uid, cid, successor, joins_at) for uid, _ in some))
                await self._index.remove(cid, some)
            if not cursor:
                return

    async def _move(self, uid: UserId, cid: ChannelId, successor: ChannelId, joins_at: int) -> None:
        stamp = await self._announce(uid)
        own = (keys.user(uid), keys.user_index(uid), keys.intents(uid), keys.preferences(uid))
        await self._redis.run_script("user_move", own, cid, successor, joins_at)
        await self._replay(uid, stamp)

    async def of_user(self, jid: str) -> list[Subscription]:
        """Return a person's subscriptions, by number.

        That there are none is believed only of a store that has not lost its data: raises StoreIdentityMismatch.
        """
        held = await self._redis.call("HGETALL", keys.user_index(keys.user_id(jid)))
        if not held:
            await self._identity.verify()
        found = [_subscription(place.hex(), record) for place, record in held.items()]
        return sorted(found, key=lambda subscription: subscription.number)

    async def numbers(self, pairs: Sequence[tuple[UserId, ChannelId]]) -> list[int | None]:
        """Return each user's number of their subscription to a channel, None where there is none; in the same order."""
        found = await self._redis.call_many([("HGET", keys.user_index(uid), _place(cid)) for uid, cid in pairs])
        return [_subscription(cid, held).number if held else None for (_, cid), held in zip(pairs, found, strict=True)]

    async def count(self, cid: ChannelId) -> int:
        """Return how many are subscribed to a channel."""
        return (await self.counts([cid]))[0]

    async def counts(self, cids: list[ChannelId]) -> list[int]:
        """Return how many are subscribed to each channel."""
        return await self._index.count(cids)

    async def replay_intents(self) -> int:
        """Replay the intents that a crash left behind; return for how many people."""
        now_ms = time.time() * 1000
        noted = await self._redis.call("ZRANGE", keys.USERS_WITH_INTENTS, 0, -1, "WITHSCORES")
        # What was noted in the future was noted before the clock was set back.
        left = [(uid, at_ms) for uid, at_ms in noted if not 0 <= now_ms - at_ms < _LEFT_BEHIND_AFTER_S * 1000]
        for uid, stamp in left:
            await self._replay(uid.decode(), stamp)
        return len(left)

    async def _announce(self, uid: UserId) -> float:
        """Note, before anything is written, that this user may have intents; return the note's stamp."""
        stamp = time.time_ns() // 1_000_000 + secrets.randbelow(1000) / 1024
        await self._redis.call("ZADD", keys.USERS_WITH_INTENTS, stamp, uid)
        return stamp

    async def _replay(self, uid: UserId, stamp: float) -> None:
        await self._settle_all(uid, await self._redis.call("HGETALL", keys.intents(uid)))
        await self._redis.call(*_unless_touched(uid, stamp))

    async def _settle_all(self, uid: UserId, pending: Mapping[bytes, bytes]) -> None:
        # Into an index before out of another: who walks the old one of a channel that moved has to find who is left.
        for cid, intent in sorted(pending.items(), key=lambda change: change[1].startswith(b"del")):
            await self._settle(uid, cid.decode(), intent.decode())

    async def _settle(self, uid: UserId, cid: ChannelId, intent: str) -> None:
        what, seq = intent.split()
        if what == "del":
            await self._index.remove(cid, [(uid, int(seq))])
        elif not await self._index.add(cid, uid, int(seq)):
            await self._redis.call("HDEL", keys.user_index(uid), _place(cid))
        elif what == "move":
            await self._catch_up(uid, cid)
        await self._redis.run_script("user_settle", (keys.intents(uid),), cid, intent)

    async def _catch_up(self, uid: UserId, cid: ChannelId) -> None:
        """Queue, in order, every version that a subscription lacks: fan-out will give it the later ones."""
        held = await self._redis.call("HGET", keys.user_index(uid), _place(cid))
        given = _subscription(cid, held).seen_version if held else inf
        while given < (newest := int(await self._redis.call("HGET", keys.channel(cid), "version") or 0)):
            for version in range(int(given) + 1, newest + 1):
                delta = await self._channels.delta(cid, version)
                content = VersionParts(news=None) if delta is None or delta.initial else split_version(delta)
                await self._outbox.enqueue([uid], cid, version, time.time(), content)
            given = newest


def _unless_touched(uid: UserId, stamp: float) -> Command:
    """Return what takes a user off the list of those with intents, unless they were announced again."""
    return script_command("zrem_if", (keys.USERS_WITH_INTENTS,), uid, repr(stamp))


def _place(cid: ChannelId) -> bytes:
    """Return where a channel stands in the user index: see ``scripts/user_held.lua``."""
    return bytes.fromhex(cid)


def _subscription(cid: ChannelId, record: bytes) -> Subscription:
    number, seq, seen, since, *paused = record.split()
    withheld_after = int(paused[0].rstrip(b"*")) if paused else None
    return Subscription(cid, int(number), int(seq), int(seen), _moment_s(since), withheld_after)


def encode_timestamp(at_s: float) -> str:
    """Return a time in six characters; ten digits would cost a person with five subscriptions 32 bytes more."""
    return urlsafe_b64encode(int(at_s).to_bytes(4)).decode().rstrip("=")


def _moment_s(text: bytes) -> float:
    """Return a moment in Unix s."""
    return float(int.from_bytes(urlsafe_b64decode(text + b"==")))


class ResumeResult(msgspec.Struct, frozen=True):
    """How many versions of each channel were withheld, and how many articles standing queries met meanwhile."""

    withheld: dict[ChannelId, int]
    missed_matches: int = 0


class SubscriptionPauses:
    """Who wants to be told nothing of what. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, redis: RedisClient, outbox: Outbox) -> None:
        """Use this link to Redis; what was withheld goes through the outbox."""
        self._redis = redis
        self._outbox = outbox

    async def pause(
        self, jid: str, cids: Sequence[ChannelId], *, watches: bool = False, unasked: bool = False
    ) -> list[ChannelId]:
        """Tell a person nothing of these channels, nor of their ``watches``; return which were not paused already.

        ``unasked``: it is we who do it, because nobody is there; they may have wished the same before, and what is in
        flight has not reached them.
        """
        own = (*_own_keys(jid), keys.in_flight(keys.user_id(jid)))
        paused = await self._redis.run_script("user_pause", own, "*" if unasked else "", int(watches), *cids)
        return [cid.decode() for cid in paused]

    async def resume(
        self, jid: str, cids: Sequence[ChannelId], *, watches: bool = False, unasked: bool = False
    ) -> ResumeResult:
        """Tell a person of these channels again, and of their ``watches``; what was withheld is queued, each as one.

        ``unasked``: only what we paused without being asked. Only those that were paused are among what is returned.
        """
        own, mark = _own_keys(jid), "*" if unasked else ""
        resumed, unheard = await self._redis.run_script("user_resume", own, time.time(), mark, int(watches), *cids)
        await self._outbox.wake_delivery([keys.user_id(jid)])  # also if nothing was: a repeated command does not tell
        return ResumeResult({cid.decode(): int(versions) for cid, versions in resumed}, int(unheard))

    async def suspend_unreachable(self, jid: str, cids: Sequence[ChannelId]) -> None:
        """Pause everything of a person whom nothing reaches, until :meth:`reinstate`; can be repeated."""
        own = keys.user(keys.user_id(jid))
        unreachable, silent = await self._redis.call("HMGET", own, "unreachable", "unheard")
        if unreachable is None:
            await self._redis.call("HSET", own, "unreachable", int(silent is None))
        await self.pause(jid, cids, watches=True, unasked=True)

    async def resume_reachable(self, jid: str, cids: Sequence[ChannelId]) -> bool:
        """Tell a person again of what we paused; False if they were not unreachable."""
        own = keys.user(keys.user_id(jid))
        watches = await self._redis.call("HGET", own, "unreachable")
        if watches is None:
            return False
        await self.resume(jid, cids, watches=watches == b"1", unasked=True)
        await self._redis.call("HDEL", own, "unreachable")
        return True


def _own_keys(jid: str) -> tuple[str, str, str]:
    uid = keys.user_id(jid)
    return keys.user_index(uid), keys.outbox(uid), keys.user(uid)
