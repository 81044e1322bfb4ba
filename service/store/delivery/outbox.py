"""What each person still has to be told: a stream of references, and batches in flight.

An item is one part of one version of a channel: its news, or its edits; its text is rendered from the
channel's log when it is sent. A batch gets its message id when it is claimed and keeps it, so that a resend
after a crash is recognisable.

An article that another of the person's channels has told is left out when a batch is claimed. The last
messages are remembered, by what they told, so that a batch of edits can become the correction of one. A message that
cannot be delivered becomes a dead letter.
"""

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from service.errors import UserError
from service.feeds.entries.version_parts import ArticleHashes, VersionParts
from service.model import ChannelId, UserId
from service.store.client import keys
from service.store.client.connection import MAX_BLOCK_S, RedisClient, RedisRepository, Value, script_command
from service.users.preferences import MAX_INTERVAL_S


def unique_timestamp() -> float:
    """Return a score that sorts by time (ms) and that no two writers share, so that a removal knows its own."""
    return time.time_ns() // 1_000_000 + secrets.randbelow(1000) / 1024


MessageId = str
_Pair = tuple[UserId, MessageId]


class MatchedSearch(msgspec.Struct, frozen=True, array_like=True):
    """A standing query, by its owner's number and as people write it, and which changes of a version it has met."""

    number: int
    query: str
    positions: tuple[int, ...]


class OutboxItem(msgspec.Struct, frozen=True, array_like=True):
    """One part of one version of one channel, and when it was queued (Unix s).

    ``left_out`` are the positions of changes that another channel has told this person, or that none of their
    standing queries has ``met``, if it is for those that they are told; None for none, because the scripts' JSON has no
    empty lists. After a pause it is the news of all versions ``after`` one, and their changes are counted through.
    """

    channel: ChannelId
    version: int
    queued_s: float
    edits: bool = False
    omitted: tuple[int, ...] | None = None
    matches: tuple[MatchedSearch, ...] | None = None
    after_version: int | None = None


class QueuedItem(msgspec.Struct, frozen=True):
    """An item that is not claimed yet, and its place in the queue."""

    id: str
    item: OutboxItem

    @property
    def queued_s(self) -> float:
        """When it was queued, by the clock of the store (Unix s)."""
        return int(self.id.partition("-")[0]) / 1000


Suppressions = dict[str, tuple[int, ...] | Literal["later"] | None]
"""By the places of items, in order: the positions of changes that are not told; "later" for an item that is told at
another time, None for one that never is."""


class ClaimRules(msgspec.Struct, frozen=True):
    """What a claim has to apply for one person; the channels that are ``spaced`` are told at intervals."""

    suppressions: Suppressions
    interval_channels: frozenset[ChannelId] = frozenset()


_NOTHING: Final[Mapping[UserId, ClaimRules]] = {}


class SavedSearchHit(msgspec.Struct, frozen=True):
    """What one user's standing queries have met in a version, each something."""

    uid: UserId
    matches: tuple[MatchedSearch, ...]


class Batch(msgspec.Struct, frozen=True, rename={"message_id": "m", "claimed_s": "at"}):
    """Items that go out as one message, all of them news or all edits.

    ``acked``: the server has it, and its receipt is awaited. ``replaces``: the id of the message that it
    corrects (XEP-0308); then the items begin with what that one told, news and earlier edits. ``more``: items were
    still queued when it was claimed; not known of one that was found in flight.
    """

    message_id: MessageId
    items: tuple[OutboxItem, ...]
    acked: bool
    claimed_s: float
    replaces: MessageId = ""
    tries: int = 1
    has_more: bool = False


class SentMessage(
    msgspec.Struct,
    frozen=True,
    rename={"message_id": "m", "claimed_s": "at", "sent_s": "sent", "received_s": "received"},
):
    """What a message told a person; with its corrections, if there were any. Times are Unix seconds, None if never.

    It was made at ``claimed_s`` (0 if that was not noted), taken by the server at ``sent_s``, and a client confirmed it
    at ``received_s``; ``tries`` is how often it was sent; ``why`` it was given up, "" if it was not.
    """

    message_id: MessageId
    items: tuple[OutboxItem, ...]
    claimed_s: float = 0.0
    sent_s: float | None = None
    received_s: float | None = None
    tries: int = 1
    why: str = ""


_BATCH: Final = msgspec.json.Decoder(Batch)
_TOLD: Final = msgspec.json.Decoder(SentMessage)


class Outbox(RedisRepository):
    """Queues per person, in order; enqueueing is idempotent, delivery at least once under one id."""

    async def enqueue(
        self, uids: Sequence[UserId], cid: ChannelId, version: int, now_s: float, parts: VersionParts
    ) -> list[UserId]:
        """Queue a version's parts for each user who is subscribed and was not given it yet, and wake delivery.

        Returns the users who are not subscribed: the channel index was behind.
        """
        given = (cid, version, now_s, _wire(parts.news), _wire(parts.edits))
        replies = await self._redis.call_many(
            [script_command("outbox_enqueue", _queued_keys(uid), *given) for uid in uids]
        )
        # Also those who already had it: a crash may have come between the queue and the waiting list.
        await self.wake_delivery([uid for uid, reply in zip(uids, replies, strict=True) if reply in (0, 1)])
        return [uid for uid, reply in zip(uids, replies, strict=True) if reply < 0]

    async def enqueue_hits(
        self,
        cid: ChannelId,
        version: int,
        now_s: float,
        hits: Sequence[SavedSearchHit],
        *,
        news: ArticleHashes,
        changes: int,
    ) -> None:
        """Queue, once, what people's standing queries have met among a version's ``changes``, and wake delivery.

        Who is subscribed to the channel is told by that, and who has ended these standing queries not at all.
        """
        commands = []
        for hit in hits:
            positions = {position for watch in hit.matches for position in watch.positions}
            marks = _wire(tuple(mark for mark in news if mark[0] in positions))
            met = (
                part for each in hit.matches for part in (each.number, each.query, msgspec.json.encode(each.positions))
            )
            commands.append(script_command("outbox_hit", _hit_keys(hit.uid), cid, version, now_s, marks, changes, *met))
        replies = await self._redis.call_many(commands)
        await self.wake_delivery([hit.uid for hit, reply in zip(hits, replies, strict=True) if reply in (0, 1)])

    async def wake_delivery(self, waiting: Sequence[UserId]) -> None:
        """Have delivery look after these users, for something was queued for them."""
        if waiting:
            stamps = [value for uid in waiting for value in (unique_timestamp(), uid)]
            await self._redis.call_many(
                [
                    ("ZADD", keys.USERS_WITH_DELIVERIES, *stamps),
                    ("XADD", keys.DELIVERY_WAKEUPS, "MAXLEN", "~", 10_000, "*", "u", " ".join(waiting)),
                ]
            )

    async def waiting_users(self) -> list[UserId]:
        """Return everyone with queued items or batches in flight, longest waiting first."""
        return [uid.decode() for uid in await self._redis.call("ZRANGE", keys.USERS_WITH_DELIVERIES, 0, -1)]

    async def count_waiting(self) -> int:
        """Return how many people wait for something."""
        return int(await self._redis.call("ZCARD", keys.USERS_WITH_DELIVERIES))

    async def wait_for_wakeups(self, after: str, timeout_s: float) -> tuple[list[UserId], str]:
        """Wait until something is queued; return for whom, and where to go on. ``after=""`` means from now."""
        if not after:
            newest = await self._redis.call("XREVRANGE", keys.DELIVERY_WAKEUPS, "+", "-", "COUNT", 1)
            after = newest[0][0].decode() if newest else "0-0"
        block_ms = max(1, int(min(timeout_s, MAX_BLOCK_S) * 1000))
        found = await self._redis.call_blocking(
            "XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", keys.DELIVERY_WAKEUPS, after
        )
        uids: dict[UserId, None] = {}
        for _, entries in found or ():
            for entry, fields in entries:
                after = entry.decode()
                uids.update(dict.fromkeys(fields[b"u"].decode().split()))
        return list(uids), after

    async def jids(self, uids: Sequence[UserId]) -> list[str]:
        """Return the users' bare JIDs, in the same order; empty for a user we do not know."""
        found = await self._redis.call_many([("HGET", keys.user(uid), "jid") for uid in uids])
        return [jid.decode() if jid else "" for jid in found]

    async def oldest_queued_s(self, uids: Sequence[UserId]) -> list[float | None]:
        """Return since when each user's oldest item is queued (Unix s), None if there is none, in the same order."""
        found = await self._redis.call_many([("XRANGE", keys.outbox(uid), "-", "+", "COUNT", 1) for uid in uids])
        return [int(items[0][0].partition(b"-")[0]) / 1000 if items else None for items in found]

    async def queued_items(self, after: Mapping[UserId, str], max_items: int) -> list[list[QueuedItem]]:
        """Return each user's oldest items that are not claimed yet, after a place or "", in the same order."""
        firsts = [(keys.outbox(uid), f"({place}" if place else "-") for uid, place in after.items()]
        found = await self._redis.call_many([("XRANGE", own, first, "+", "COUNT", max_items) for own, first in firsts])
        return [[_queued(*item) for item in items] for items in found]

    async def last_sent_s(self, uids: Sequence[UserId]) -> list[dict[ChannelId, float]]:
        """Return when each user was told last of each channel that they are told at intervals (Unix s)."""
        found = await self._redis.call_many([("HGETALL", keys.last_sent_times(uid)) for uid in uids])
        return [{cid.decode(): int(at_ms) / 1000 for cid, at_ms in noted.items()} for noted in found]

    async def claim(
        self, uids: Sequence[UserId], max_items: int, now_s: float, decided: Mapping[UserId, ClaimRules] = _NOTHING
    ) -> dict[UserId, Batch]:
        """Move each user's oldest items into a new batch with a message id; users with nothing to be told are absent.

        Of users who are in ``decided`` only those items are looked at that are named there.

        Raises :class:`service.errors.StoreUnavailable`; then there may be a new batch among those in flight.
        """
        stamps = await self._stamps(uids)
        replies = await self._redis.call_many_once(
            [
                script_command("outbox_claim", _claimed_keys(uid), uid, max_items, now_s, *_written(decided.get(uid)))
                for uid in uids
            ]
        )
        await self._drop_idle(stamps, [uid for uid, reply in zip(uids, replies, strict=True) if reply == 0])
        return {
            uid: msgspec.structs.replace(_BATCH.decode(reply[0]), has_more=reply[1] > 0)
            for uid, reply in zip(uids, replies, strict=True)
            if not isinstance(reply, int)
        }

    async def in_flight(self, uids: Sequence[UserId]) -> dict[UserId, list[Batch]]:
        """Return each user's unfinished batches, oldest first."""
        found = await self._redis.call_many([("HVALS", keys.in_flight(uid)) for uid in uids])
        return {uid: sorted(map(_BATCH.decode, batches), key=_age) for uid, batches in zip(uids, found, strict=True)}

    async def sent_messages(self, uids: Sequence[UserId]) -> list[list[SentMessage]]:
        """Return what each user's last messages told, newest first, but for those that were given up."""
        found = await self._redis.call_many([("LRANGE", keys.sent_messages(uid), 0, -1) for uid in uids])
        every = ([_TOLD.decode(message) for message in messages] for messages in found)
        return [[message for message in messages if not message.why] for messages in every]

    async def history(self, uid: UserId) -> list[SentMessage]:
        """Return a user's last messages that are not under way any more, newest first, and how they went."""
        return [_TOLD.decode(message) for message in await self._redis.call("LRANGE", keys.sent_messages(uid), 0, -1)]

    async def correct(
        self, batches: Sequence[tuple[UserId, MessageId, MessageId]], max_items: int
    ) -> dict[UserId, Batch]:
        """Make each user's batch (second) the correction of an earlier message (third); return the batches.

        A batch stays what it is if the earlier message is forgotten, told of a channel that the user has left, or
        has more than ``max_items`` together with the edits. It is absent if it is not in flight any more.
        """
        replies = await self._redis.call_many(
            [
                script_command(
                    "outbox_correct",
                    (keys.in_flight(uid), keys.sent_messages(uid), keys.user_index(uid)),
                    *mids,
                    max_items,
                )
                for uid, *mids in batches
            ]
        )
        return {uid: _BATCH.decode(held) for (uid, *_), held in zip(batches, replies, strict=True) if held}

    async def complete(
        self, *, acked: Sequence[_Pair] = (), done: Sequence[_Pair] = (), received: Sequence[_Pair] = ()
    ) -> None:
        """Note that the server has messages: their receipts are awaited (``acked``), or not, so that they are ``done``.

        Of those that were ``received``, the receipts came. What is done or received is in flight no more.
        """
        how_far = {"acked": acked, "done": done, "received": received}
        await self._complete([(*pair, how, "") for how, pairs in how_far.items() for pair in pairs])

    async def count_retry(self, uid: UserId, message_ids: Sequence[MessageId]) -> None:
        """Count that these batches are sent once more."""
        await self._redis.call_many(
            [script_command("outbox_retried", (keys.in_flight(uid),), mid) for mid in message_ids]
        )

    async def move_to_dead_letters(self, uid: UserId, message_id: MessageId, reason: str) -> None:
        """Park a batch that can never be delivered as a dead letter, and go on."""
        held = await self._redis.call("HGET", keys.in_flight(uid), message_id)
        if held:
            letter: tuple[str | bytes, ...] = ("u", uid, "m", message_id, "why", reason, "items", held)
            await self._redis.call("XADD", keys.DEAD_LETTERS, "MAXLEN", "~", 10_000, "*", *letter)
            await self._complete([(uid, message_id, "lost", reason)])

    async def _complete(self, batches: Sequence[tuple[UserId, MessageId, str, str]]) -> None:
        """Complete batches, each as far as it is said, and why if it is lost."""
        stamps = await self._stamps(list(dict.fromkeys(uid for uid, *_ in batches)))
        replies = await self._redis.call_many(
            [
                script_command(
                    "outbox_complete", (keys.outbox(uid), keys.in_flight(uid), keys.sent_messages(uid)), *how
                )
                for uid, *how in batches
            ]
        )
        await self._drop_idle(stamps, [uid for (uid, *_), idle in zip(batches, replies, strict=True) if idle])

    async def _stamps(self, uids: Sequence[UserId]) -> dict[UserId, float | None]:
        # Read before we look whether anything is left: whoever enqueues in between sets a new stamp.
        found = await self._redis.call("ZMSCORE", keys.USERS_WITH_DELIVERIES, *uids) if uids else []
        return dict(zip(uids, found, strict=True))

    async def _drop_idle(self, stamps: dict[UserId, float | None], idle: Sequence[UserId]) -> None:
        await self._redis.call_many(
            [
                script_command("zrem_if", (keys.USERS_WITH_DELIVERIES,), uid, repr(stamp))
                for uid in dict.fromkeys(idle)
                if (stamp := stamps[uid]) is not None
            ]
        )


def _queued_keys(uid: UserId) -> tuple[str, ...]:
    return keys.user_index(uid), keys.outbox(uid), keys.intents(uid)


def _hit_keys(uid: UserId) -> tuple[str, ...]:
    return keys.user_index(uid), keys.outbox(uid), keys.saved_searches(uid), keys.saved_search_hits(uid), keys.user(uid)


def _claimed_keys(uid: UserId) -> tuple[str, ...]:
    return (
        keys.outbox(uid),
        keys.in_flight(uid),
        keys.article_marks(uid),
        keys.older_article_marks(uid),
        keys.restrictions(uid),
        keys.last_sent_times(uid),
    )


def _queued(place: bytes, fields: Mapping[bytes, bytes]) -> QueuedItem:
    item = OutboxItem(
        fields[b"c"].decode(),
        int(fields[b"v"]),
        float(fields[b"t"]),
        fields[b"e"] == b"1",
        omitted=msgspec.json.decode(fields.get(b"x", b"[]"), type=tuple[int, ...]) or None,
        matches=msgspec.json.decode(fields.get(b"w", b"[]"), type=tuple[MatchedSearch, ...]) or None,
        after_version=int(fields[b"a"]) if b"a" in fields else None,
    )
    return QueuedItem(place.decode(), item)


def _wire(marks: ArticleHashes | None) -> str:
    """Return a part as outbox_claim reads it; "" for none."""
    if marks is None:
        return ""
    return msgspec.json.encode([[position, *(mark.hex() for mark in own)] for position, own in marks]).decode()


def _written(decided: ClaimRules | None) -> tuple[Value, ...]:
    """Return what is decided as outbox_claim reads it: the last place, the spaced channels, their TTL (s), the rest."""
    if decided is None:
        return ()
    last = next(reversed(decided.suppressions), "0-1")
    return last, " ".join(decided.interval_channels), MAX_INTERVAL_S, msgspec.json.encode(decided.suppressions)


def _age(batch: Batch) -> tuple[int, int]:
    """Order by the stream id that ends the message id."""
    _, at_ms, serial = batch.message_id.rsplit("-", 2)
    return int(at_ms), int(serial)


_PLACE = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)


class DeadLetter(msgspec.Struct, frozen=True):
    """One of them; ``at_s`` is when it was given up (Unix s).

    What is not ``readable`` may lack anything: it can only be dropped.
    """

    id: str
    user: UserId
    message_id: MessageId
    why: str
    at_s: float
    items: tuple[OutboxItem, ...]
    readable: bool = True


class DeadLetters:
    """The newest ~10,000. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, redis: RedisClient, outbox: Outbox) -> None:
        """Use this link to Redis; the outbox is where they go back to."""
        self._redis = redis
        self._outbox = outbox

    async def page(self, before: str = "", count: int = 50) -> tuple[list[DeadLetter], str]:
        """Return letters, newest first, and the place to go on from; "" begins and ends."""
        newest = f"({before}" if before else "+"
        found = await self._redis.call("XREVRANGE", keys.DEAD_LETTERS, newest, "-", "COUNT", count + 1)
        letters = [_letter(place, fields) for place, fields in found]
        return letters[:count], letters[count - 1].id if len(letters) > count else ""

    async def count(self) -> int:
        """Return how many there are."""
        return int(await self._redis.call("XLEN", keys.DEAD_LETTERS))

    async def requeue(self, letter: str) -> bool:
        """Have what a letter would have told be told, but for what its person has ended; False if there is none.

        Can be repeated after a crash. Raises :class:`UserError` for one that cannot be read.
        """
        found = await self._redis.call("XRANGE", keys.DEAD_LETTERS, letter, letter) if _PLACE.fullmatch(letter) else ()
        if not found:
            return False
        fields = found[0][1]
        uid = _letter(*found[0]).user
        if not uid:
            raise UserError("That message cannot be read: nobody knows what it would have told. It can be forgotten.")
        own = (keys.user_index(uid), keys.outbox(uid), keys.requeued_dead_letter(uid, letter))
        await self._redis.run_script("outbox_revive", own, fields[b"items"])
        await self._outbox.wake_delivery([uid])
        await self._redis.call("XDEL", keys.DEAD_LETTERS, letter)
        return True

    async def drop(self, letter: str) -> bool:
        """Forget a letter; False if there is none."""
        return bool(_PLACE.fullmatch(letter) and await self._redis.call("XDEL", keys.DEAD_LETTERS, letter))


def _letter(place: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
    at_s = int(place.partition(b"-")[0]) / 1000
    try:
        user, message_id, why = (fields[name].decode() for name in (b"u", b"m", b"why"))
        items = msgspec.json.decode(fields[b"items"], type=Batch).items
    except (KeyError, UnicodeDecodeError, msgspec.MsgspecError):
        user, items = "", ()
    if not user:
        said = fields.get(b"why", b"").decode(errors="replace")
        return DeadLetter(place.decode(), "", "", said, at_s, (), readable=False)
    return DeadLetter(place.decode(), user, message_id, why, at_s, items)
