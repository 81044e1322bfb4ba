"""What each person still has to be told: a stream of references, and batches in flight.

An item is (channel, version); its text is rendered from the channel's log when it is sent. A batch
gets its message id when it is claimed and keeps it, so that a resend after a crash is recognisable.
"""

import secrets
import time
from collections.abc import Sequence

import msgspec

from service.model import ChannelId, UserId
from service.store import keys
from service.store.link import BLOCK_AT_MOST_S, Link, script

MessageId = str


class OutboxItem(msgspec.Struct, frozen=True):
    """One version of one channel, and when it was queued (Unix s)."""

    channel: ChannelId
    version: int
    queued_s: float


class Batch(msgspec.Struct, frozen=True):
    """Items that go out as one message. ``acked``: the server has it, and its receipt is awaited."""

    message_id: MessageId
    items: tuple[OutboxItem, ...]
    acked: bool
    claimed_s: float


class _Flying(msgspec.Struct):
    items: list[tuple[ChannelId, int, float]]
    acked: bool
    at: float


class Outbox:
    """Queues per person, in order; enqueueing is idempotent, delivery at least once under one id."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def enqueue(self, uids: Sequence[UserId], cid: ChannelId, version: int, now_s: float) -> list[UserId]:
        """Queue a version for each user who is subscribed and was not given it yet, and wake delivery.

        Returns the users who are not subscribed: the channel index was behind.
        """
        replies = await self._link.many(
            [script("outbox_enqueue", (keys.user_index(uid), keys.outbox(uid)), cid, version, now_s) for uid in uids]
        )
        # Also those who already had it: a crash may have come between the queue and the waiting list.
        waiting = [uid for uid, reply in zip(uids, replies, strict=True) if reply >= 0]
        if waiting:
            stamps = [value for uid in waiting for value in (_stamp(), uid)]
            await self._link.many(
                [
                    ("ZADD", keys.WAITING, *stamps),
                    ("XADD", keys.WAKE, "MAXLEN", "~", 10_000, "*", "u", " ".join(waiting)),
                ]
            )
        return [uid for uid, reply in zip(uids, replies, strict=True) if reply < 0]

    async def waiting(self) -> list[UserId]:
        """Return everyone with queued items or batches in flight, longest waiting first."""
        return [uid.decode() for uid in await self._link.call("ZRANGE", keys.WAITING, 0, -1)]

    async def depth(self) -> int:
        """Return how many people wait for something."""
        return int(await self._link.call("ZCARD", keys.WAITING))

    async def wake(self, after: str, timeout_s: float) -> tuple[list[UserId], str]:
        """Wait until something is queued; return for whom, and where to go on. ``after=""`` means from now."""
        if not after:
            newest = await self._link.call("XREVRANGE", keys.WAKE, "+", "-", "COUNT", 1)
            after = newest[0][0].decode() if newest else "0-0"
        block_ms = max(1, int(min(timeout_s, BLOCK_AT_MOST_S) * 1000))
        found = await self._link.wait("XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", keys.WAKE, after)
        uids: dict[UserId, None] = {}
        for _, entries in found or ():
            for entry, fields in entries:
                after = entry.decode()
                uids.update(dict.fromkeys(fields[b"u"].decode().split()))
        return list(uids), after

    async def address(self, uids: Sequence[UserId]) -> list[str]:
        """Return the users' bare JIDs, in the same order; empty for a user we do not know."""
        found = await self._link.many([("HGET", keys.user(uid), "jid") for uid in uids])
        return [jid.decode() if jid else "" for jid in found]

    async def claim(self, uids: Sequence[UserId], max_items: int, now_s: float) -> dict[UserId, Batch]:
        """Move each user's oldest items into a new batch with a message id; users with nothing queued are absent.

        Raises :class:`service.errors.StoreUnavailable`; then there may be a new batch among those in flight.
        """
        stamps = await self._stamps(uids)
        replies = await self._link.many_once(
            [script("outbox_claim", (keys.outbox(uid), keys.in_flight(uid)), uid, max_items, now_s) for uid in uids]
        )
        await self._drop_idle(stamps, [uid for uid, reply in zip(uids, replies, strict=True) if reply == 0])
        return {uid: _batch(*reply) for uid, reply in zip(uids, replies, strict=True) if not isinstance(reply, int)}

    async def inflight(self, uids: Sequence[UserId]) -> dict[UserId, list[Batch]]:
        """Return each user's unfinished batches, oldest first."""
        found = await self._link.many([("HGETALL", keys.in_flight(uid)) for uid in uids])
        return {
            uid: sorted((_batch(*pair) for pair in batches.items()), key=_age)
            for uid, batches in zip(uids, found, strict=True)
        }

    async def acked(self, pairs: Sequence[tuple[UserId, MessageId]]) -> None:
        """The server has these messages; they now wait for their receipts."""
        await self._link.many([script("outbox_acked", (keys.in_flight(uid),), mid) for uid, mid in pairs])

    async def done(self, pairs: Sequence[tuple[UserId, MessageId]]) -> None:
        """Forget these batches: they have arrived."""
        stamps = await self._stamps([uid for uid, _ in pairs])
        replies = await self._link.many(
            [script("outbox_done", (keys.outbox(uid), keys.in_flight(uid)), mid) for uid, mid in pairs]
        )
        await self._drop_idle(stamps, [uid for (uid, _), idle in zip(pairs, replies, strict=True) if idle])

    async def dead(self, uid: UserId, message_id: MessageId, reason: str) -> None:
        """Park a batch that can never be delivered as a dead letter, and go on."""
        held = await self._link.call("HGET", keys.in_flight(uid), message_id)
        if held:
            letter: tuple[str | bytes, ...] = ("u", uid, "m", message_id, "why", reason, "items", held)
            await self._link.call("XADD", keys.DEAD_LETTERS, "MAXLEN", "~", 10_000, "*", *letter)
            await self.done([(uid, message_id)])

    async def _stamps(self, uids: Sequence[UserId]) -> dict[UserId, float | None]:
        # Read before we look whether anything is left: whoever enqueues in between sets a new stamp.
        found = await self._link.call("ZMSCORE", keys.WAITING, *uids) if uids else []
        return dict(zip(uids, found, strict=True))

    async def _drop_idle(self, stamps: dict[UserId, float | None], idle: Sequence[UserId]) -> None:
        await self._link.many(
            [
                script("zrem_if", (keys.WAITING,), uid, repr(stamp))
                for uid in dict.fromkeys(idle)
                if (stamp := stamps[uid]) is not None
            ]
        )


def _stamp() -> float:
    """Return a score that sorts by time and that no two writers share, so that a removal knows its own."""
    return time.time_ns() // 1_000_000 + secrets.randbelow(1000) / 1024


def _batch(message_id: bytes, value: bytes) -> Batch:
    flying = msgspec.json.decode(value, type=_Flying)
    items = tuple(OutboxItem(*item) for item in flying.items)
    return Batch(message_id.decode(), items, flying.acked, flying.at)


def _age(batch: Batch) -> tuple[int, int]:
    """Order by the stream id that ends the message id."""
    _, at_ms, serial = batch.message_id.rsplit("-", 2)
    return int(at_ms), int(serial)
