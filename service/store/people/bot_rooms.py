"""The group chats of each bot, stored so that any process that runs the bot can rejoin them."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.store.client import keys
from service.store.client.redis_client import RedisRepository
from service.store.delivery.outbox import MessageId

MAX_MESSAGE_IDS: Final = 50
"""Maximum number of the bot's messages per group chat whose ids are stored."""
_MESSAGE_IDS_TTL_S: Final = 30 * 86_400


class Room(msgspec.Struct, frozen=True):
    """What a bot needs to join a group chat, and who invited it.

    ``nick`` is the bot's nickname in the chat. ``by`` is the bare JID of the inviter; "" if it was not verified.
    """

    nick: str
    password: str = ""
    by: str = ""


class BotRooms(RedisRepository):
    """The group chats of each bot. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def get(self, address: str) -> dict[str, Room]:
        """Return the group chats of the bot at ``address``, keyed by the JID of the chat."""
        found = await self._redis.call("HGETALL", keys.bot_rooms(address))
        return {jid.decode(): msgspec.msgpack.decode(packed, type=Room) for jid, packed in found.items()}

    async def put(self, address: str, jid: str, room: Room) -> None:
        """Store ``room``, which holds what the bot at ``address`` needs to join the group chat ``jid``."""
        await self._redis.call("HSET", keys.bot_rooms(address), jid, msgspec.msgpack.encode(room))

    async def drop(self, address: str, jid: str) -> None:
        """Remove ``jid`` from the group chats of the bot at ``address``."""
        await self._redis.call("HDEL", keys.bot_rooms(address), jid)

    async def message_ids(self, jids: Sequence[str]) -> dict[str, dict[str, MessageId]]:
        """Return the ids of the bot's most recent messages in each group chat, keyed by the JID of the chat.

        Each value is a dict, oldest message first. It maps the id that the chat assigned to a message to the bot's own
        id for that message.
        """
        found = await self._redis.call_many(
            [("LRANGE", keys.room_message_ids(keys.user_id(jid)), 0, -1) for jid in jids]
        )
        return {
            jid: dict(msgspec.msgpack.decode(pair, type=tuple[str, str]) for pair in pairs)
            for jid, pairs in zip(jids, found, strict=True)
        }

    async def record_message_id(self, jid: str, room_id: str, message_id: MessageId) -> None:
        """Record that the group chat ``jid`` assigned the id ``room_id`` to the bot's message ``message_id``."""
        pair = msgspec.msgpack.encode((room_id, message_id))
        key = keys.room_message_ids(keys.user_id(jid))
        await self._redis.call_many(
            [
                ("LREM", key, 0, pair),
                ("RPUSH", key, pair),
                ("LTRIM", key, -MAX_MESSAGE_IDS, -1),
                ("EXPIRE", key, _MESSAGE_IDS_TTL_S),
            ]
        )
