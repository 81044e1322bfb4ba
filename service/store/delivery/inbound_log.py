"""The inbound log: users' messages to a bot, stored until the bot has replied to them.

An XMPP server may deliver the same message to several sessions of the bot, and thus to several processes. The message
is nevertheless stored only once, because all processes store it under the token that the server gave it. One process is
responsible for each user: it reads the user's messages in order, replies to them, and removes them. Thus no message is
lost and no reply is repeated, even if a process fails (guarantee I8).
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
"""How long the token of a stored message is remembered (s). No message waits this long for its reply."""

EntryId = str
"""Id of a message in the inbound log of its user."""


class InboundMessage(msgspec.Struct, frozen=True):
    """A message from the user ``jid`` to the bot at ``address``.

    - ``token``: identifies the message, so that it is stored only once; "" if it cannot arrive twice.
    - ``payload``: the message as serialised by the bots.
    - ``since_s``: the earliest time (Unix s) at which a copy of this message may have been stored. If a message with
      the same token was stored before this time, it is a different message, and the sender has reused the token.
    """

    jid: str
    token: str
    payload: bytes
    address: str
    since_s: float = 0.0


class UnansweredMessage(msgspec.Struct, frozen=True):
    """A message in the inbound log to which no bot has sent a complete reply.

    ``reply`` contains the stanzas of the reply if a bot has begun to send one. Otherwise, it is empty.
    """

    uid: UserId
    entry_id: EntryId
    payload: bytes
    address: str
    reply: tuple[str, ...]


class InboundLog(RedisRepository):
    """Stores and reads the inbound messages of all users. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, redis: RedisClient) -> None:
        super().__init__(redis)
        self._worklist = Worklist(redis, keys.USERS_WITH_INBOUND)

    async def add(self, messages: Sequence[InboundMessage]) -> list[bool]:
        """Store messages; return, for each message in order, whether it was new.

        Messages that were stored before are not stored again. If a user has more than ``MAX_UNANSWERED`` messages, the
        oldest are dropped.
        """
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
        """Return all unanswered messages of the users ``uids``.

        Each user's messages are in the order of their arrival.
        """
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
        """Return the users who may have unanswered messages, beginning with the one who has waited longest."""
        return await self._worklist.all()

    async def record_reply(self, uid: UserId, entry_id: EntryId, stanzas: Sequence[str]) -> None:
        """Store the stanzas of the reply to a message, before they are sent.

        If this process then fails, the process that takes over can send the same reply.
        """
        script_keys = (keys.inbound_messages(uid), keys.inbound_replies(uid))
        await self._redis.run_script("inbound_record_reply", script_keys, entry_id, msgspec.json.encode(stanzas))

    async def remove_answered(self, pairs: Sequence[tuple[UserId, EntryId]]) -> None:
        """Remove messages to which a bot has replied, given as pairs (user id, entry id)."""
        uids = list(dict.fromkeys(uid for uid, _ in pairs))
        timestamps = await self._worklist.timestamps(uids)
        gone: list[Command] = [("XDEL", keys.inbound_messages(uid), entry_id) for uid, entry_id in pairs]
        gone += [("HDEL", keys.inbound_replies(uid), entry_id) for uid, entry_id in pairs]
        await self._redis.call_many(gone)
        left = await self._redis.call_many([("XLEN", keys.inbound_messages(uid)) for uid in uids])
        await self._worklist.remove(timestamps, [uid for uid, count in zip(uids, left, strict=True) if not count])

    async def caught_up_until_s(self, address: str) -> float:
        """Return the time (Unix s) up to which all messages to a bot's account have been stored; 0 if unknown.

        ``address`` is the account's address. Later messages may exist only in the archive on the account's server.
        """
        return float(await self._redis.call("HGET", keys.CAUGHT_UP_UNTIL, address) or 0)

    async def record_caught_up(self, address: str, until_s: float) -> None:
        """Record that all messages to a bot's account up to ``until_s`` (Unix s) have been stored.

        ``address`` is the account's address.
        """
        await self._redis.call("HSET", keys.CAUGHT_UP_UNTIL, address, until_s)
