"""What people said to a bot, kept until it is answered, so that no bot's death loses or repeats it.

A server may bring what is said to all bots of an account, or to any one. Whoever hears it puts it in, once, under the
name that the server gave it; whoever serves that person reads it, in order, answers, and takes it out.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from service.model import UserId
from service.store.client import keys
from service.store.client.connection import MAX_BLOCK_S, BatchingClient, Command, RedisClient, script_command
from service.store.client.keys import user_id
from service.store.delivery.outbox import unique_timestamp

MAX_UNANSWERED: Final = 100
TOKEN_TTL_S: Final = 90_000
"""For so long it is known what was said: longer than anything that was said is answered."""
_LENGTH: Final = 10_000
_SAID_KEPT_S: Final = 86_400
_ARRIVED_KEPT_S: Final = 3_600

EntryId = str
"""Of something in what a person said."""


class InboundMessage(msgspec.Struct, frozen=True):
    """Something that a person said: ``said`` as the bots wrote it down, to which address.

    ``token`` names it, "" if nobody can hear it twice; what was heard by that name before ``since_s`` (Unix s) was
    something else.
    """

    jid: str
    token: str
    payload: bytes
    address: str
    since_s: float = 0.0


class UnansweredMessage(msgspec.Struct, frozen=True):
    """A sentence in its place; ``answers``, unless empty, are on their way already."""

    uid: UserId
    entry_id: EntryId
    payload: bytes
    address: str
    reply: tuple[str, ...]


class BotNotice(msgspec.Struct, frozen=True):
    """A notice to the other bots: a message of this person was stored, or their software sent an ad-hoc command.

    ``ordered`` is the command as the bots serialize it, empty for a stored message; ``voice`` is who has to answer it.
    """

    uid: UserId
    adhoc_command: bytes = b""
    voice: str = ""


class InboundLog:
    """Sentences, by person. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, redis: RedisClient, together: BatchingClient) -> None:
        """Use these links to Redis: ``link`` for commands that block, ``together`` for all others."""
        self._blocking = redis
        self._redis = together

    async def add(self, sentences: Sequence[InboundMessage]) -> list[bool]:
        """Store messages; return whether each was new, in the same order."""
        if not sentences:
            return []
        # First: the list may name too many, never too few.
        await self._redis.call(
            "ZADD",
            keys.USERS_WITH_INBOUND,
            *(part for one in sentences for part in (unique_timestamp(), user_id(one.jid))),
        )
        commands: list[Command] = []
        for one in sentences:
            uid = user_id(one.jid)
            given = (one.token, one.payload, one.address, MAX_UNANSWERED, one.since_s, TOKEN_TTL_S)
            heard, _, known, home = keys.inbound_log(uid)
            commands.append(script_command("heard_put", (heard, known, home), *given))
        return [reply == 1 for reply in await self._redis.call_many(commands)]

    async def read_unanswered(self, uids: Collection[UserId]) -> list[UnansweredMessage]:
        """Return what these people said and nobody has answered, each one's in order."""
        found = await self._redis.call_many([("XRANGE", _heard(uid), "-", "+") for uid in uids])
        full = [uid for uid, entries in zip(uids, found, strict=True) if entries]
        begun = await self._redis.call_many([("HGETALL", _answers(uid)) for uid in full])
        answers = dict(zip(full, begun, strict=True))
        return [
            UnansweredMessage(
                uid,
                place.decode(),
                fields[b"s"],
                fields[b"v"].decode(),
                msgspec.json.decode(answers[uid].get(place, b"[]"), type=tuple[str, ...]),
            )
            for uid, entries in zip(uids, found, strict=True)
            for place, fields in entries
        ]

    async def unanswered_users(self) -> list[UserId]:
        """Return everybody of whom something may wait for an answer, longest waiting first."""
        return [uid.decode() for uid in await self._redis.call("ZRANGE", keys.USERS_WITH_INBOUND, 0, -1)]

    async def record_reply(self, uid: UserId, place: EntryId, stanzas: Sequence[str]) -> None:
        """Note the reply that is about to be sent: whoever takes over sends the same one."""
        await self._redis.run_script("heard_answered", keys.inbound_log(uid)[:2], place, msgspec.json.encode(stanzas))

    async def remove_answered(self, pairs: Sequence[tuple[UserId, EntryId]]) -> None:
        """These sentences are answered."""
        uids = list(dict.fromkeys(uid for uid, _ in pairs))
        if not uids:
            return
        stamps = dict(zip(uids, await self._redis.call("ZMSCORE", keys.USERS_WITH_INBOUND, *uids), strict=True))
        gone: list[Command] = [("XDEL", _heard(uid), place) for uid, place in pairs]
        gone += [("HDEL", _answers(uid), place) for uid, place in pairs]
        left = (await self._redis.call_many([*gone, *(("XLEN", _heard(uid)) for uid in uids)]))[len(gone) :]
        await self._redis.call_many(
            [
                script_command("zrem_if", (keys.USERS_WITH_INBOUND,), uid, repr(stamp))
                for uid, count in zip(uids, left, strict=True)
                if not count and (stamp := stamps[uid]) is not None
            ]
        )

    async def caught_up_until_s(self, address: str) -> float:
        """Return until when (Unix s) all that an account was told has been taken in; 0 if it never was."""
        return float(await self._redis.call("HGET", keys.CAUGHT_UP_UNTIL, address) or 0)

    async def record_caught_up(self, address: str, until_s: float) -> None:
        """Note that all that an account was told has been taken in until this moment (Unix s)."""
        await self._redis.call("HSET", keys.CAUGHT_UP_UNTIL, address, until_s)

    # Who serves whom.

    async def home_addresses(self, uids: Sequence[UserId]) -> list[str]:
        """Return the address that each wrote to first, "" if we do not know, in the same order."""
        found = await self._redis.call_many([("GET", _home(uid)) for uid in uids])
        return [address.decode() if address else "" for address in found]

    async def record_arrival(self, jid: str, address: str) -> None:
        """Note where somebody came to first, for an hour, until they are let in."""
        await self._redis.call("SET", _home(user_id(jid)), address, "NX", "EX", _ARRIVED_KEPT_S)

    async def keep_home_address(self, jid: str) -> None:
        """Keep somebody's home for good: they were let in."""
        await self._redis.call("PERSIST", _home(user_id(jid)))

    async def set_home_address(self, jids: Sequence[str], address: str) -> None:
        """Have the home of rooms be where the bot has that is in them."""
        await self._redis.call_many([("SET", _home(user_id(jid)), address) for jid in jids])

    # From bot to bot.

    async def notify(self, notices: Sequence[BotNotice]) -> None:
        """Send notices to the other bots."""
        added = ("XADD", keys.BOT_NOTICES, "MAXLEN", "~", _LENGTH, "*")
        await self._redis.call_many(
            [(*added, "u", each.uid, "o", each.adhoc_command, "v", each.voice) for each in notices]
        )

    async def newest_notice_id(self) -> str:
        """Return the id of the notice sent last."""
        newest = await self._redis.call("XREVRANGE", keys.BOT_NOTICES, "+", "-", "COUNT", 1)
        return newest[0][0].decode() if newest else "0-0"

    async def read_notices(self, after: str) -> dict[str, BotNotice]:
        """Wait, for some seconds, for notices sent after the one with this id; return them by their ids."""
        return {
            ident: BotNotice(fields[b"u"].decode(), fields[b"o"], fields[b"v"].decode())
            for ident, fields in (await self._entries(keys.BOT_NOTICES, after)).items()
        }

    async def remove_notices(self, ids: Sequence[str]) -> None:
        """Remove notices that were acted on."""
        if ids:
            await self._redis.call("XDEL", keys.BOT_NOTICES, *ids)

    async def queue_stanzas(self, voice: str, stanzas: Sequence[str]) -> None:
        """Have the bot with this voice write something."""
        commands: list[Command] = [
            ("XADD", keys.queued_stanzas(voice), "MAXLEN", "~", _LENGTH, "*", "s", each) for each in stanzas
        ]
        await self._redis.call_many([*commands, ("EXPIRE", keys.queued_stanzas(voice), _SAID_KEPT_S)])

    async def read_stanzas(self, voice: str) -> dict[str, str]:
        """Wait, for some seconds, for what others have us write; return it by id."""
        return {
            ident: fields[b"s"].decode()
            for ident, fields in (await self._entries(keys.queued_stanzas(voice), "0")).items()
        }

    async def remove_stanzas(self, voice: str, places: Sequence[str]) -> None:
        """We wrote these."""
        if places:
            await self._redis.call("XDEL", keys.queued_stanzas(voice), *places)

    async def _entries(self, stream: str, after: str) -> dict[str, dict[bytes, bytes]]:
        block_ms = int(MAX_BLOCK_S * 1000)
        found = await self._blocking.call_blocking("XREAD", "COUNT", 1_000, "BLOCK", block_ms, "STREAMS", stream, after)
        return {ident.decode(): fields for _, entries in found or () for ident, fields in entries}


def _heard(uid: UserId) -> str:
    return keys.inbound_log(uid)[0]


def _answers(uid: UserId) -> str:
    return keys.inbound_log(uid)[1]


def _home(uid: UserId) -> str:
    return keys.inbound_log(uid)[3]
