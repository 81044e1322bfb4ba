"""Which rooms a bot is in, so that whichever process serves it next enters them again."""

import msgspec

from service.store import keys
from service.store.link import Link


class Room(msgspec.Struct, frozen=True):
    """What it takes to enter a room."""

    nick: str
    password: str = ""


class Rooms:
    """Rooms, by the address of the bot. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def of(self, address: str) -> dict[str, Room]:
        """Return the rooms that this bot is in, by their JIDs."""
        found = await self._link.call("HGETALL", keys.rooms(address))
        return {jid.decode(): msgspec.msgpack.decode(packed, type=Room) for jid, packed in found.items()}

    async def put(self, address: str, jid: str, room: Room) -> None:
        """Remember a room."""
        await self._link.call("HSET", keys.rooms(address), jid, msgspec.msgpack.encode(room))

    async def drop(self, address: str, jid: str) -> None:
        """Forget a room."""
        await self._link.call("HDEL", keys.rooms(address), jid)
