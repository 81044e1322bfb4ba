"""Announcements: messages from admins to people and rooms, delivered over several minutes to limit the load.

A recipient is *pending* until the announcement has been queued in the recipient's outbox. In each maintenance interval,
every bot queues the announcement for as many pending recipients as the announcement's rate allows. The bot then removes
these recipients from the set of pending recipients. For each user, the store records which announcements were queued.
Each recipient therefore gets an announcement once, even if a process is killed or several bots queue it.

Quiet hours, digests, rate limits, receipts and resends apply to announcements as they do to other messages. Users can
turn announcements off (:class:`service.users.user_settings.UserSettings`).
"""

import math
from collections.abc import Collection, Sequence
from typing import Final, Literal

import msgspec

from service.model import ChannelId, UserId
from service.store.client import keys
from service.store.client.redis_client import RedisClient, RedisRepository, script_command
from service.store.delivery.outbox import ANNOUNCEMENTS, Outbox
from service.store.people.users import Users
from service.users.user_settings import UserSettings

MAX_PER_S: Final = 50.0
"""Maximum rate at which an announcement is queued, in recipients per second. A bot can send far more messages."""
_RECORDS_KEPT: Final = 100
_BATCH_SIZE: Final = 500
_RECIPIENTS_TTL_S: Final = 30 * 86_400
_LANGUAGE: Final = "en"

RecipientKind = Literal["all", "people", "rooms"]


class Announcement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message from an admin to many users.

    - ``number``: identifies the announcement.
    - ``text``: the text for recipients whose language is not in ``translations``.
    - ``audience``: description of the recipients, for admins.
    - ``by``: name of the account that started the announcement.
    - ``started_s``: when the announcement was started (Unix s).
    - ``minutes``: how many minutes it should take to queue the announcement for all recipients. It takes longer if
      the rate would exceed ``MAX_PER_S``.
    - ``total``: number of recipients.
    - ``translations``: maps languages (ISO 639) to texts.
    - ``stopped_s``: when the announcement was stopped (Unix s); 0 if it was not stopped.
    - ``stopped_at``: the number of recipients for whom the announcement was queued before it was stopped; 0 if it
      was not stopped.
    """

    number: int
    text: str
    audience: str
    by: str
    started_s: float
    minutes: float
    total: int = 0
    translations: dict[str, str] = {}
    stopped_s: float = 0.0
    stopped_at: int = 0

    @property
    def per_s(self) -> float:
        """The rate at which the announcement is queued, in recipients per second."""
        return min(MAX_PER_S, self.total / (self.minutes * 60))

    def text_in(self, language: str) -> str:
        """Return the text in ``language`` (a BCP 47 tag); if there is no translation, return the default text."""
        return self.translations.get(_primary(language), self.text)

    def due_count(self, now_s: float) -> int:
        """Return the number of recipients for whom the announcement should have been queued by ``now_s`` (Unix s)."""
        return min(self.total, math.ceil(max(0.0, now_s - self.started_s) * self.per_s))


class Audience(msgspec.Struct, frozen=True):
    """Conditions that each recipient of an announcement must meet.

    - ``kind``: whether recipients are people, rooms (group chats), or both ("all").
    - ``language``: the recipient's language (ISO 639); "" for any language.
    - ``jids``: bare JIDs of the users who may be recipients; empty if any user may be one.
    - ``channels``: a recipient must be subscribed to at least one of these channels; None for no such condition.
    - ``rooms``: JIDs of all group chats, used to tell rooms from people.
    """

    kind: RecipientKind = "all"
    language: str = ""
    jids: frozenset[str] = frozenset()
    channels: frozenset[ChannelId] | None = None
    rooms: frozenset[str] = frozenset()

    def includes(self, jid: str, settings: UserSettings) -> bool:
        """Return whether the user ``jid`` meets the conditions, and has not turned announcements off in ``settings``.

        The condition ``channels`` is not checked.
        """
        return (
            settings.announcements
            and (self.kind == "all" or (jid in self.rooms) is (self.kind == "rooms"))
            and (not self.language or (_primary(settings.effective_language) or _LANGUAGE) == self.language)
            and (not self.jids or jid in self.jids)
        )


class AnnouncementProgress(msgspec.Struct, frozen=True):
    """An announcement and its progress.

    ``remaining`` is the number of recipients for whom the announcement has not been queued yet.
    """

    announcement: Announcement
    remaining: int


class AnnouncementStore(RedisRepository):
    """Starts, stops, reads and queues announcements.

    Every method may raise :class:`service.errors.StoreUnavailable` and can then be called again.
    """

    def __init__(self, redis: RedisClient, users: Users, outbox: Outbox) -> None:
        """Create the repository. It finds recipients in ``users`` and queues announcements in ``outbox``."""
        super().__init__(redis)
        self._users = users
        self._outbox = outbox

    async def find_recipients(self, audience: Audience) -> list[UserId]:
        """Return the sorted ids of the users who would receive an announcement to ``audience`` at present."""
        found: list[UserId] = []
        members = await self._redis.call("SMEMBERS", keys.USERS)
        uids = sorted(uid.decode() for uid in members)
        for start in range(0, len(uids), _BATCH_SIZE):
            found += await self._select(uids[start : start + _BATCH_SIZE], audience)
        return found

    async def _select(self, uids: Sequence[UserId], audience: Audience) -> list[UserId]:
        """Return the users in ``uids`` who belong to ``audience`` and to whom messages can be delivered."""
        jids, settings, unreachable, suspended = (
            await self._users.jids(uids),
            await self._users.user_settings(uids),
            await self._redis.call_many([("HEXISTS", keys.user(uid), "unreachable") for uid in uids]),
            await self._users.suspended_users(uids),
        )
        chosen = [
            uid
            for uid, jid, own, away in zip(uids, jids, settings, unreachable, strict=True)
            if jid and not away and uid not in suspended and audience.includes(jid, own)
        ]
        if audience.channels is None:
            return chosen
        wanted = {bytes.fromhex(cid) for cid in audience.channels}
        held = await self._redis.call_many([("HKEYS", keys.user_index(uid)) for uid in chosen])
        return [uid for uid, channels in zip(chosen, held, strict=True) if not wanted.isdisjoint(channels)]

    async def reserve_number(self) -> int:
        """Return an unused number, with which the caller can :meth:`start` a new announcement."""
        return int(await self._redis.call("INCR", keys.LAST_ANNOUNCEMENT))

    async def start(self, announcement: Announcement, uids: Collection[UserId]) -> bool:
        """Start an announcement to the users ``uids``; return False if an announcement with the same number exists."""
        to = keys.announcement_recipients(announcement.number)
        if await self._redis.call("HEXISTS", keys.ANNOUNCEMENTS, announcement.number):
            return False
        ordered = list(uids)
        for start in range(0, len(ordered), _BATCH_SIZE):
            scores = [value for uid in ordered[start : start + _BATCH_SIZE] for value in (0, uid)]
            await self._redis.call_many([("ZADD", to, *scores), ("EXPIRE", to, _RECIPIENTS_TTL_S)])
        record = msgspec.structs.replace(announcement, total=len(ordered))
        number = announcement.number
        _, is_new, _ = await self._redis.call_many(
            [
                ("SADD", keys.RUNNING_ANNOUNCEMENTS, number),
                ("HSETNX", keys.ANNOUNCEMENTS, number, msgspec.json.encode(record)),
                ("HDEL", keys.ANNOUNCEMENTS, *range(number - 2 * _RECORDS_KEPT, number - _RECORDS_KEPT + 1)),
            ]
        )
        return bool(is_new)

    async def stop(self, number: int, now_s: float) -> bool:
        """Stop an announcement; return False if it is not running.

        Users who have not received the announcement yet will not receive it, even if it is already in their outboxes.
        """
        found = await self.get(number)
        if found is None or not await self._redis.call("SISMEMBER", keys.RUNNING_ANNOUNCEMENTS, number):
            return False
        left = int(await self._redis.call("ZCARD", keys.announcement_recipients(number)))
        stopped = msgspec.structs.replace(found, stopped_s=now_s, stopped_at=found.total - left)
        await self._redis.call("HSET", keys.ANNOUNCEMENTS, number, msgspec.json.encode(stopped))
        await self._end(number)
        return True

    async def get(self, number: int) -> Announcement | None:
        """Return the announcement with the number ``number``; None if it does not exist or is no longer kept.

        The latest hundred announcements are kept.
        """
        found = await self._redis.call("HGET", keys.ANNOUNCEMENTS, number)
        return msgspec.json.decode(found, type=Announcement) if found else None

    async def latest(self) -> list[AnnouncementProgress]:
        """Return the announcements that are kept (up to a hundred) with their progress, newest first."""
        found = await self._redis.call("HVALS", keys.ANNOUNCEMENTS)
        records = sorted(
            (msgspec.json.decode(each, type=Announcement) for each in found), key=lambda each: -each.number
        )
        left = await self._redis.call_many([("ZCARD", keys.announcement_recipients(each.number)) for each in records])
        return [AnnouncementProgress(each, remaining) for each, remaining in zip(records, left, strict=True)]

    async def dispatch(self, now_s: float, interval_s: float) -> None:
        """Queue each running announcement for the recipients whose turn has come by ``now_s`` (Unix s).

        The caller repeats this every ``interval_s`` seconds. If calls are delayed, later calls queue announcements at
        up to twice the planned rate until the delay is made up.
        """
        for number in map(int, await self._redis.call("SMEMBERS", keys.RUNNING_ANNOUNCEMENTS)):
            announcement, to = await self.get(number), keys.announcement_recipients(number)
            remaining = int(await self._redis.call("ZCARD", to))
            if announcement is None or announcement.stopped_s or not remaining:
                await self._end(number)
                continue
            due = announcement.due_count(now_s) - (announcement.total - remaining)
            count = min(due, math.ceil(2 * interval_s * announcement.per_s))
            if count > 0:
                uids = [uid.decode() for uid in await self._redis.call("ZRANGE", to, 0, count - 1)]
                await self._queue(number, uids, now_s)
                await self._redis.call("ZREM", to, *uids)

    async def _queue(self, number: int, uids: Sequence[UserId], now_s: float) -> None:
        chosen = await self._select(uids, Audience())  # some may have left, or turned announcements off
        await self._redis.call_many(
            [
                script_command(
                    "outbox_enqueue_announcement",
                    (keys.user(uid), keys.outbox(uid), keys.received_announcements(uid)),
                    ANNOUNCEMENTS,
                    number,
                    now_s,
                )
                for uid in chosen
            ]
        )
        await self._outbox.wake_delivery(chosen)

    async def _end(self, number: int) -> None:
        await self._redis.call_many(
            [("DEL", keys.announcement_recipients(number)), ("SREM", keys.RUNNING_ANNOUNCEMENTS, number)]
        )


def _primary(language: str) -> str:
    return language.partition("-")[0].lower()
