"""The inbound log: messages of users to a bot, stored until the bot has replied.

An XMPP server may deliver a message to several sessions of the bot, and so to several processes. The message is stored
once, because each process stores it under the token that the server gave it. One process is responsible for each user.
It reads the user's messages in order, replies, and removes them. The failure of a process therefore neither loses a
message nor repeats a reply (guarantee I8).
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from service.model import UserId
from service.store.client import keys
from service.store.client.keys import user_id
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisClient, RedisRepository, script_command
from service.store.client.worklists import Worklist

MAX_UNANSWERED: Final = 100
TOKEN_TTL_S: Final = 90_000
"""How long the token of a stored message is remembered; longer than any message waits for its reply."""

EntryId = str
"""Id of a message in the inbound log of its user."""


class InboundMessage(msgspec.Struct, frozen=True):
    """A message from the user ``jid`` to the bot at ``address``.

    - ``payload``: the message as the bots serialize it.
    - ``token``: identifies the message, so that it is stored once; "" if it cannot be received twice.
    - ``since_s``: time (Unix s) before which a message with the same token counts as a different message.
    """

    jid: str
    token: str
    payload: bytes
    address: str
    since_s: float = 0.0


class UnansweredMessage(msgspec.Struct, frozen=True):
    """A message in the inbound log to which no bot has completely replied.

    If a bot has begun to send a reply, ``reply`` has its stanzas; otherwise it is empty.
    """

    uid: UserId
    entry_id: EntryId
    payload: bytes
    address: str
    reply: tuple[str, ...]


class InboundLog(RedisRepository):
    """Inbound messages by user. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, redis: RedisClient) -> None:
        super().__init__(redis)
        self._worklist = Worklist(redis, keys.USERS_WITH_INBOUND)

    async def add(self, messages: Sequence[InboundMessage]) -> list[bool]:
        """Store messages; return, for each message in order, whether it is new."""
        if not messages:
            return []
        # The index of users comes first: it may name users without messages, but never lack one with messages.
        await self._redis.call(*self._worklist.add_command(user_id(one.jid) for one in messages))
        commands: list[Command] = []
        for one in messages:
            uid = user_id(one.jid)
            given = (one.token, one.payload, one.address, MAX_UNANSWERED, one.since_s, TOKEN_TTL_S)
            script_keys = (keys.inbound_messages(uid), keys.inbound_tokens(uid), keys.home_address(uid))
            commands.append(script_command("inbound_add", script_keys, *given))
        return [reply == 1 for reply in await self._redis.call_many(commands)]

    async def read_unanswered(self, uids: Collection[UserId]) -> list[UnansweredMessage]:
        """Return the unanswered messages of these users; the messages of each user are in the order of arrival."""
        found = await self._redis.call_many([("XRANGE", keys.inbound_messages(uid), "-", "+") for uid in uids])
        full = [uid for uid, entries in zip(uids, found, strict=True) if entries]
        begun = await self._redis.call_many([("HGETALL", keys.inbound_replies(uid)) for uid in full])
        answers = dict(zip(full, begun, strict=True))
        return [
            UnansweredMessage(
                uid,
                entry_id.decode(),
                fields[b"s"],
                fields[b"v"].decode(),
                msgspec.json.decode(answers[uid].get(entry_id, b"[]"), type=tuple[str, ...]),
            )
            for uid, entries in zip(uids, found, strict=True)
            for entry_id, fields in entries
        ]

    async def unanswered_users(self) -> list[UserId]:
        """Return the users who may have unanswered messages, longest waiting first."""
        return await self._worklist.all()

    async def record_reply(self, uid: UserId, entry_id: EntryId, stanzas: Sequence[str]) -> None:
        """Store the stanzas of a reply before it is sent.

        If this process fails, the next one sends the same reply.
        """
        script_keys = (keys.inbound_messages(uid), keys.inbound_replies(uid))
        await self._redis.run_script("inbound_record_reply", script_keys, entry_id, msgspec.json.encode(stanzas))

    async def remove_answered(self, pairs: Sequence[tuple[UserId, EntryId]]) -> None:
        """Remove messages that have been answered, given as pairs (user id, entry id)."""
        uids = list(dict.fromkeys(uid for uid, _ in pairs))
        timestamps = await self._worklist.timestamps(uids)
        gone: list[Command] = [("XDEL", keys.inbound_messages(uid), entry_id) for uid, entry_id in pairs]
        gone += [("HDEL", keys.inbound_replies(uid), entry_id) for uid, entry_id in pairs]
        await self._redis.call_many(gone)
        left = await self._redis.call_many([("XLEN", keys.inbound_messages(uid)) for uid in uids])
        await self._worklist.remove(timestamps, [uid for uid, count in zip(uids, left, strict=True) if not count])

    async def caught_up_until_s(self, address: str) -> float:
        """Return the time (Unix s) up to which all archived messages of an account are stored; 0 if unknown."""
        return float(await self._redis.call("HGET", keys.CAUGHT_UP_UNTIL, address) or 0)

    async def record_caught_up(self, address: str, until_s: float) -> None:
        """Record that all archived messages of an account up to this time (Unix s) are stored."""
        await self._redis.call("HSET", keys.CAUGHT_UP_UNTIL, address, until_s)
