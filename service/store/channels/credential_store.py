"""The sealed credentials of protected channels, which :mod:`service.net.credential_vault` can open.

A credential is a field of the channel's Redis hash, and is deleted with it.
"""

from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository


class CredentialStore(RedisRepository):
    """Stores and reads sealed credentials. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def put(self, cid: ChannelId, sealed: str, *replaced: str) -> None:
        """Store the sealed credential of an existing channel; if ``replaced`` is given, only in place of that one."""
        # First, because an id without a credential is harmless.
        await self._redis.call("SADD", keys.PROTECTED_CHANNELS, cid)
        await self._redis.run_script("channel_set_field", (keys.channel(cid),), "credential", sealed, *replaced)

    async def get(self, cid: ChannelId) -> str:
        """Return the sealed credential of a channel; "" if it has none."""
        return str((await self._redis.call("HGET", keys.channel(cid), "credential") or b"").decode())

    async def sample(self, count: int) -> list[tuple[str, str]]:
        """Return up to ``count`` random protected channels as pairs (URL, sealed credential)."""
        cids = [cid.decode() for cid in await self._redis.call("SRANDMEMBER", keys.PROTECTED_CHANNELS, count)]
        found = await self._redis.call_many([("HMGET", keys.channel(cid), "url", "credential") for cid in cids])
        return [(url.decode(), sealed.decode()) for url, sealed in found if url and sealed]
