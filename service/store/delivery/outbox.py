"""The outbox of each user: items that are still to be delivered, and messages that are being sent.

- An *item* stands for the news or the edits of one version of a channel. Its text is made from the channel's log of
  versions when it is sent.
- A *claim* moves items from the outbox into a *batch*, which is sent as one message.
- A batch keeps its message id. If the message is sent again after a crash, recipients can thus recognise the
  duplicate.
- A claim omits articles that another channel has already delivered to the user.
- The last messages are kept with their items, so that a batch of edits can be sent as a correction (XEP-0308).
- A message that cannot be delivered becomes a dead letter (:mod:`service.store.delivery.dead_letters`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from service.feeds.entries.version_parts import ArticleHashes, VersionParts
from service.model import ChannelId, UserId
from service.store.client import keys
from service.store.client.node_connections import Value
from service.store.client.redis_client import RedisClient, RedisRepository, script_command
from service.store.client.streams import append_command, newest_id, wait_for_entries
from service.store.client.worklists import Worklist
from service.users.preferences import MAX_INTERVAL_S

ANNOUNCEMENTS: Final[ChannelId] = "0" * 40
"""Channel id of items that are announcements; their version is the announcement's number. No channel has this id."""

MessageId = str
_Pair = tuple[UserId, MessageId]


class MatchedSearch(msgspec.Struct, frozen=True, array_like=True):
    """A saved search that matches a version of a channel.

    - ``number``: identifies the saved search among those of the same user.
    - ``query``: the text of the saved search.
    - ``positions``: indices of the matching changes in the version's list of changes.
    """

    number: int
    query: str
    positions: tuple[int, ...]


class OutboxItem(msgspec.Struct, frozen=True, array_like=True):
    """An item to be delivered to a user: the news or the edits of one version of a channel, or an announcement.

    - ``channel``, ``version``: the channel and its version. If ``channel`` is ``ANNOUNCEMENTS``, the item is an
      announcement, and ``version`` is its number.
    - ``queued_s``: when the item was queued (Unix s).
    - ``edits``: True for the edits of the version, False for its news.
    - ``omitted``: positions of changes that are not delivered; None if all changes are delivered. A change is omitted
      if another channel has delivered it, a filter suppresses it, or no saved search matches it.
    - ``matches``: saved searches for which the item was queued; None if there are none.
    - ``after_version``: set only for an item that is queued at the end of a pause. This item stands for the news of
      all versions after ``after_version``, up to and including ``version``. None for all other items.

    If ``after_version`` is set, the positions in ``omitted`` are negative and count from the end: -1 is the last
    change of ``version``. They therefore stay correct when old versions are no longer stored.
    """

    # None is used instead of empty lists, because the scripts' JSON has no empty lists.

    channel: ChannelId
    version: int
    queued_s: float
    edits: bool = False
    omitted: tuple[int, ...] | None = None
    matches: tuple[MatchedSearch, ...] | None = None
    after_version: int | None = None


class QueuedItem(msgspec.Struct, frozen=True):
    """An item that is in the outbox and is not part of a message yet.

    ``id`` is the item's id in the outbox.
    """

    id: str
    item: OutboxItem

    @property
    def queued_s(self) -> float:
        """When the item was queued (Unix s, according to Redis's clock)."""
        return int(self.id.partition("-")[0]) / 1000


Suppressions = dict[str, tuple[int, ...] | Literal["later"] | None]
"""Maps ids of items in an outbox, in their order there, to what is done with them.

The value is a tuple with the positions of changes to omit, "later" to leave the item in the outbox, or None to drop
the item.
"""


class ClaimRules(msgspec.Struct, frozen=True):
    """Rules for choosing which of a user's items to send in the next message.

    - ``suppressions``: maps the id of an item to what is done with it: some of its changes are omitted, it is kept
      for later, or it is dropped. Items in the outbox after the last one in this mapping are not sent yet.
    - ``interval_channels``: channels with a minimum time between deliveries to this user. The time of each delivery
      is recorded for them.
    - ``after``: the id of the last of the oldest items, which are all kept for later; "" if there are none.
    """

    suppressions: Suppressions
    interval_channels: frozenset[ChannelId] = frozenset()
    after: str = ""


_NO_RULES: Final[Mapping[UserId, ClaimRules]] = {}


class SavedSearchHit(msgspec.Struct, frozen=True):
    """A user's saved searches that match a version of a channel.

    ``matches`` contains these searches of the user ``uid``, each with the changes that it matches.
    """

    uid: UserId
    matches: tuple[MatchedSearch, ...]


class Batch(msgspec.Struct, frozen=True, rename={"message_id": "m", "claimed_s": "at"}):
    """Items that are sent as one message: only news, only edits, or only announcements.

    - ``acked``: True if the server has accepted the message, and a receipt is awaited.
    - ``claimed_s``: when the items were taken from the outbox (Unix s).
    - ``replaces``: id of the earlier message that this one corrects (XEP-0308); "" if it corrects none. The items of
      the earlier message come first in ``items``.
    - ``tries``: how many times the message was sent.
    - ``has_more``: True if further items were left in the outbox when these were taken. Only :meth:`Outbox.claim` sets
      this; it is False in the results of other methods.
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
    """A message that was sent or given up, together with its corrections.

    - ``claimed_s``: when the items were taken from the outbox (Unix s).
    - ``sent_s``: when the server accepted the message (Unix s); None if it did not.
    - ``received_s``: when a client sent a receipt (Unix s); None if none did.
    - ``tries``: how many times the message was sent.
    - ``why``: why the message was given up; "" if it was not given up.
    """

    message_id: MessageId
    items: tuple[OutboxItem, ...]
    claimed_s: float = 0.0
    sent_s: float | None = None
    received_s: float | None = None
    tries: int = 1
    why: str = ""


_BATCH: Final = msgspec.json.Decoder(Batch)
_SENT: Final = msgspec.json.Decoder(SentMessage)


class Outbox(RedisRepository):
    """Manages the outboxes of all users. An outbox contains the items that are to be delivered to a user.

    Each item is queued once. It is delivered at least once (guarantee I1), always under the same message id (guarantee
    I2).
    """

    def __init__(self, redis: RedisClient) -> None:
        super().__init__(redis)
        self._worklist = Worklist(redis, keys.USERS_WITH_DELIVERIES)

    async def enqueue(
        self, uids: Sequence[UserId], cid: ChannelId, version: int, now_s: float, parts: VersionParts
    ) -> list[UserId]:
        """Queue a version of a channel for users, at most once for each user, and wake the bots.

        ``now_s`` is the Unix time. ``parts`` contains the version's news and edits, which are queued as separate items.

        Return the users who are no longer subscribed to the channel. For them, nothing is queued.
        """
        given = (cid, version, now_s, _marks_as_json(parts.news), _marks_as_json(parts.edits))
        replies = await self._redis.call_many(
            [script_command("outbox_enqueue", _queued_keys(uid), *given) for uid in uids]
        )
        # Including users who had it already: a crash may have prevented this update after the item was queued.
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
        """Queue the changes in a version that match users' saved searches, and wake the bots.

        - ``now_s``: the Unix time.
        - ``hits``: for each user, the matching saved searches.
        - ``news``: hashes of the new articles in the version.
        - ``changes``: total number of changes in the version.

        Users who are subscribed to the channel are skipped. So are saved searches that were removed in the meantime.
        Repeating the call queues nothing twice.
        """
        commands = []
        for hit in hits:
            positions = {position for search in hit.matches for position in search.positions}
            marks = _marks_as_json(tuple(mark for mark in news if mark[0] in positions))
            met = (
                part for each in hit.matches for part in (each.number, each.query, msgspec.json.encode(each.positions))
            )
            commands.append(
                script_command("outbox_enqueue_matches", _hit_keys(hit.uid), cid, version, now_s, marks, changes, *met)
            )
        replies = await self._redis.call_many(commands)
        await self.wake_delivery([hit.uid for hit, reply in zip(hits, replies, strict=True) if reply in (0, 1)])

    async def wake_delivery(self, waiting: Sequence[UserId]) -> None:
        """Add users to the list of users with pending deliveries, and notify the bots about them."""
        if waiting:
            await self._redis.call_many(
                [self._worklist.add_command(waiting), append_command(keys.DELIVERY_WAKEUPS, "u", " ".join(waiting))]
            )

    async def waiting_users(self, limit: int = 0) -> list[UserId]:
        """Return the users who may have queued items or unfinished messages, the longest-waiting users first.

        ``limit`` is the maximum number of users; 0 means no limit.
        """
        return await self._worklist.all(limit)

    async def count_waiting(self) -> int:
        """Return the number of users who may have queued items or unfinished messages."""
        return int(await self._redis.call("ZCARD", keys.USERS_WITH_DELIVERIES))

    async def wait_for_wakeups(self, after: str) -> tuple[list[UserId], str]:
        """Wait up to a few seconds for new items in outboxes.

        ``after`` is the position that the previous call returned; "" waits for items that are queued from now on.

        Return (users, position): the users with new items, and the position to pass to the next call.
        """
        after = after or await newest_id(self._redis, keys.DELIVERY_WAKEUPS)
        woken = await wait_for_entries(self._redis, keys.DELIVERY_WAKEUPS, after, 100)
        uids = dict.fromkeys(uid for _, fields in woken for uid in fields[b"u"].decode().split())
        return list(uids), woken[-1][0] if woken else after

    async def oldest_queued_s(self, uids: Sequence[UserId]) -> list[float | None]:
        """Return, for each user in order, when the oldest item in the user's outbox was queued (Unix s).

        The time is None if the user's outbox is empty.
        """
        found = await self._redis.call_many([("XRANGE", keys.outbox(uid), "-", "+", "COUNT", 1) for uid in uids])
        return [int(items[0][0].partition(b"-")[0]) / 1000 if items else None for items in found]

    async def queued_items(self, after: Mapping[UserId, str], max_items: int) -> list[list[QueuedItem]]:
        """Return, for each user in order, up to ``max_items`` items that are still in the user's outbox, oldest first.

        ``after`` maps each user to the id of the item after which to begin; "" to begin with the oldest item.
        """
        ranges = [(keys.outbox(uid), f"({entry_id}" if entry_id else "-") for uid, entry_id in after.items()]
        found = await self._redis.call_many([("XRANGE", *each, "+", "COUNT", max_items) for each in ranges])
        return [[parse_item(*item) for item in items] for items in found]

    async def last_sent_s(self, uids: Sequence[UserId]) -> list[dict[ChannelId, float]]:
        """Return, for each user in order, a mapping from channels to the times of their last deliveries (Unix s).

        The mapping includes only channels for which there is a minimum time between deliveries.
        """
        found = await self._redis.call_many([("HGETALL", keys.last_sent_times(uid)) for uid in uids])
        return [{cid.decode(): int(at_ms) / 1000 for cid, at_ms in noted.items()} for noted in found]

    async def claim(
        self, uids: Sequence[UserId], max_items: int, now_s: float, rules: Mapping[UserId, ClaimRules] = _NO_RULES
    ) -> dict[UserId, Batch]:
        """Take up to ``max_items`` of the oldest items from each user's outbox, to be sent as one message per user.

        - ``now_s``: the Unix time.
        - ``rules``: maps users to rules for choosing items. A user without rules gets the oldest items.

        Return a mapping from users to their batches. Users without items to deliver are left out. The items of
        suspended users are dropped. If :class:`service.errors.StoreUnavailable` is raised, items may or may not have
        been taken.
        """
        stamps = await self._worklist.timestamps(uids)
        replies = await self._redis.call_many_once(
            [
                script_command(
                    "outbox_claim", _claimed_keys(uid), uid, max_items, now_s, *_claim_arguments(rules.get(uid))
                )
                for uid in uids
            ]
        )
        await self._worklist.remove(stamps, [uid for uid, reply in zip(uids, replies, strict=True) if reply == 0])
        return {
            uid: msgspec.structs.replace(_BATCH.decode(reply[0]), has_more=reply[1] > 0)
            for uid, reply in zip(uids, replies, strict=True)
            if not isinstance(reply, int)
        }

    async def drop_queued(self, uids: Sequence[UserId]) -> None:
        """Delete all items in users' outboxes. Messages that are already being sent are not affected."""
        stamps = await self._worklist.timestamps(uids)
        replies = await self._redis.call_many(
            [command for uid in uids for command in (("DEL", keys.outbox(uid)), ("HLEN", keys.in_flight(uid)))]
        )
        await self._worklist.remove(stamps, [uid for uid, left in zip(uids, replies[1::2], strict=True) if not left])

    async def in_flight(self, uids: Sequence[UserId]) -> dict[UserId, list[Batch]]:
        """Return a mapping from users to the messages that are still being sent to them, oldest first."""
        found = await self._redis.call_many([("HVALS", keys.in_flight(uid)) for uid in uids])
        return {
            uid: sorted(map(_BATCH.decode, batches), key=_age_key) for uid, batches in zip(uids, found, strict=True)
        }

    async def sent_messages(self, uids: Sequence[UserId]) -> list[list[SentMessage]]:
        """Return, for each user in order, the last messages that were sent to the user, newest first.

        Messages that were given up are left out.
        """
        every = await asyncio.gather(*map(self.history, uids))
        return [[message for message in messages if not message.why] for messages in every]

    async def history(self, uid: UserId) -> list[SentMessage]:
        """Return the last messages that were sent to a user or given up, newest first.

        Messages that are still being sent are not included.
        """
        return [_SENT.decode(message) for message in await self._redis.call("LRANGE", keys.sent_messages(uid), 0, -1)]

    async def correct(
        self, batches: Sequence[tuple[UserId, MessageId, MessageId]], max_items: int
    ) -> dict[UserId, Batch]:
        """Turn messages that are about to be sent into corrections of earlier messages (XEP-0308).

        ``batches`` contains tuples (user, id of the new message, id of the earlier message). A correction contains
        the items of both messages, those of the earlier message first.

        Return a mapping from users to the messages to send. A user is left out if the new message is no longer being
        sent. A new message is returned unchanged in these cases:

        - The earlier message is unknown, or contains an item of a channel from which the user has unsubscribed.
        - The correction would have more than ``max_items`` items.
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
        return {uid: _BATCH.decode(packed) for (uid, *_), packed in zip(batches, replies, strict=True) if packed}

    async def complete(
        self, *, acked: Sequence[_Pair] = (), done: Sequence[_Pair] = (), received: Sequence[_Pair] = ()
    ) -> None:
        """Record the progress of messages, given as pairs (user id, message id).

        - ``acked``: messages that the server has accepted, and for which a receipt is awaited.
        - ``done``: messages that the server has accepted, and for which no receipt is awaited.
        - ``received``: messages for which a receipt has arrived.

        Messages in ``done`` and ``received`` no longer count as being sent.
        """
        progress = {"acked": acked, "done": done, "received": received}
        await self._complete([(*pair, how, "") for how, pairs in progress.items() for pair in pairs])

    async def count_retry(self, uid: UserId, message_ids: Sequence[MessageId]) -> None:
        """Increment the number of tries of messages that are being sent to a user again."""
        await self._redis.call_many(
            [script_command("outbox_count_retry", (keys.in_flight(uid),), mid) for mid in message_ids]
        )

    async def move_to_dead_letters(self, uid: UserId, message_id: MessageId, reason: str) -> None:
        """Give up a message that cannot be delivered, and add it to the dead letters.

        ``reason`` tells admins why the message was given up.
        """
        packed = await self._redis.call("HGET", keys.in_flight(uid), message_id)
        if packed:
            letter: tuple[str | bytes, ...] = ("u", uid, "m", message_id, "why", reason, "items", packed)
            await self._redis.call(*append_command(keys.DEAD_LETTERS, *letter))
            await self._complete([(uid, message_id, "lost", reason)])

    async def _complete(self, batches: Sequence[tuple[UserId, MessageId, str, str]]) -> None:
        """Record the progress of messages, given as tuples (user id, message id, progress, reason).

        - progress: "acked", "done" or "received", as in :meth:`complete`, or "lost" if the message was given up.
        - reason: why the message was given up; "" if it was not given up.
        """
        stamps = await self._worklist.timestamps(list(dict.fromkeys(uid for uid, *_ in batches)))
        replies = await self._redis.call_many(
            [
                script_command(
                    "outbox_complete", (keys.outbox(uid), keys.in_flight(uid), keys.sent_messages(uid)), *how
                )
                for uid, *how in batches
            ]
        )
        await self._worklist.remove(stamps, [uid for (uid, *_), idle in zip(batches, replies, strict=True) if idle])


def _queued_keys(uid: UserId) -> tuple[str, ...]:
    return keys.user_index(uid), keys.outbox(uid), keys.intents(uid), keys.webhook(uid), keys.webhook_queue(uid)


def _hit_keys(uid: UserId) -> tuple[str, ...]:
    return (
        *(keys.user_index(uid), keys.outbox(uid), keys.saved_searches(uid), keys.saved_search_hits(uid)),
        *(keys.user(uid), keys.webhook(uid), keys.webhook_queue(uid)),
    )


def _claimed_keys(uid: UserId) -> tuple[str, ...]:
    return (
        keys.outbox(uid),
        keys.in_flight(uid),
        keys.article_marks(uid),
        keys.older_article_marks(uid),
        keys.restrictions(uid),
        keys.last_sent_times(uid),
    )


def parse_item(entry_id: bytes, fields: Mapping[bytes, bytes]) -> QueuedItem:
    """Return the item in an entry of the Redis stream of an outbox or of the queue of a webhook."""
    item = OutboxItem(
        fields[b"c"].decode(),
        int(fields[b"v"]),
        float(fields[b"t"]),
        fields[b"e"] == b"1",
        omitted=msgspec.json.decode(fields.get(b"x", b"[]"), type=tuple[int, ...]) or None,
        matches=msgspec.json.decode(fields.get(b"w", b"[]"), type=tuple[MatchedSearch, ...]) or None,
        after_version=int(fields[b"a"]) if b"a" in fields else None,
    )
    return QueuedItem(entry_id.decode(), item)


def _marks_as_json(marks: ArticleHashes | None) -> str:
    """Encode the hashes of a version's articles as JSON, in the form that Lua scripts expect.

    ``marks`` contains the hashes for the version's news or for its edits. If the version has no such part, ``marks``
    is None, and the result is "".
    """
    if marks is None:
        return ""
    return msgspec.json.encode([[position, *(mark.hex() for mark in own)] for position, own in marks]).decode()


def _claim_arguments(rules: ClaimRules | None) -> tuple[Value, ...]:
    """Return ``rules`` as the last arguments of the script ``outbox_claim``; empty if there are no rules."""
    if rules is None:
        return ()
    last = next(reversed(rules.suppressions), "0-1")
    return last, " ".join(rules.interval_channels), MAX_INTERVAL_S, msgspec.json.encode(rules.suppressions), rules.after


def _age_key(batch: Batch) -> tuple[int, int]:
    """Return a sort key by which older messages come first.

    A message id ends with the stream id of the message's first item. The key consists of the two integers in this
    stream id.
    """
    _, at_ms, serial = batch.message_id.rsplit("-", 2)
    return int(at_ms), int(serial)
