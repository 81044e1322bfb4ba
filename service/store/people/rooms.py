"""Which rooms a bot is in, so that whichever process serves it next enters them again."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.store.client import keys
from service.store.client.connection import RedisRepository
from service.store.delivery.outbox import MessageId

MAX_MESSAGE_IDS: Final = 50
"""Messages of a bot in one room whose ids are remembered, for 30 days."""


class Room(msgspec.Struct, frozen=True):
    """What it takes to enter a room; ``by`` is the bare JID of who invited us, "" if that is not sure."""

    nick: str
    password: str = ""
    by: str = ""


class BotRooms(RedisRepository):
    """Rooms, by the address of the bot. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def get(self, address: str) -> dict[str, Room]:
        """Return the rooms that this bot is in, by their JIDs."""
        found = await self._redis.call("HGETALL", keys.bot_rooms(address))
        return {jid.decode(): msgspec.msgpack.decode(packed, type=Room) for jid, packed in found.items()}

    async def put(self, address: str, jid: str, room: Room) -> None:
        """Remember a room."""
        await self._redis.call("HSET", keys.bot_rooms(address), jid, msgspec.msgpack.encode(room))

    async def drop(self, address: str, jid: str) -> None:
        """Forget a room."""
        await self._redis.call("HDEL", keys.bot_rooms(address), jid)

    async def message_ids(self, jids: Sequence[str]) -> dict[str, dict[str, MessageId]]:
        """Return how these rooms call the bot's last messages there, oldest first: JID → their id → ours."""
        found = await self._redis.call_many(
            [("LRANGE", keys.room_message_ids(keys.user_id(jid)), 0, -1) for jid in jids]
        )
        return {
            jid: dict(msgspec.msgpack.decode(pair, type=tuple[str, str]) for pair in pairs)
            for jid, pairs in zip(jids, found, strict=True)
        }

    async def record_message_id(self, jid: str, room_id: str, message_id: MessageId) -> None:
        """Remember how a room calls a message of the bot's."""
        pair = msgspec.msgpack.encode((room_id, message_id))
        await self._redis.run_script("room_echo", (keys.room_message_ids(keys.user_id(jid)),), pair, MAX_MESSAGE_IDS)
