"""Home addresses of users. A user's home address is that of the bot to which the user wrote first.

Only this bot writes to the user.
"""

from collections.abc import Sequence
from typing import Final

from service.model import UserId
from service.store.client import keys
from service.store.client.keys import user_id
from service.store.client.redis_client import RedisRepository

_ARRIVAL_TTL_S: Final = 3_600


class HomeAddresses(RedisRepository):
    """Home addresses by user. Every method may raise :class:`StoreUnavailable`."""

    async def of_users(self, uids: Sequence[UserId]) -> list[str]:
        """Return the home address of each user, in order; "" if it is unknown."""
        found = await self._redis.call_many([("GET", keys.home_address(uid)) for uid in uids])
        return [address.decode() if address else "" for address in found]

    async def record_arrival(self, jid: str, address: str) -> None:
        """Record ``address`` as the home address of a user who is not admitted yet. It is kept for an hour."""
        await self._redis.call("SET", keys.home_address(user_id(jid)), address, "NX", "EX", _ARRIVAL_TTL_S)

    async def keep(self, jid: str) -> None:
        """Keep the home address of a user permanently, because the user was admitted."""
        await self._redis.call("PERSIST", keys.home_address(user_id(jid)))

    async def set(self, jids: Sequence[str], address: str) -> None:
        """Set the home address of group chats to ``address``, the bot that is in them."""
        await self._redis.call_many([("SET", keys.home_address(user_id(jid)), address) for jid in jids])
