"""The sealed credentials of protected channels.

A credential is a field of the channel's Redis hash, and is deleted with it. Only :mod:`service.net.credential_vault` can
open it.
"""

from service.errors import CredentialUnreadable
from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository


class CredentialStore(RedisRepository):
    """Stores and reads sealed credentials. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def put(self, cid: ChannelId, sealed: str) -> None:
        """Store the sealed credential of a channel, replacing any other. Nothing happens if there is no such channel."""
        # First, because an id without a credential is harmless.
        await self._redis.call("SADD", keys.PROTECTED_CHANNELS, cid)
        await self._redis.run_script("channel_set_field", (keys.channel(cid),), "credential", sealed)

    async def replace(self, cid: ChannelId, sealed: str, new: str) -> None:
        """Replace the sealed credential ``sealed`` of a channel with ``new``, unless it has changed in the meantime."""
        await self._redis.run_script("channel_set_field", (keys.channel(cid),), "credential", new, sealed)

    async def get(self, cid: ChannelId) -> str:
        """Return the sealed credential of a channel. Raises :class:`CredentialUnreadable` if it has none."""
        sealed = await self._redis.call("HGET", keys.channel(cid), "credential")
        if sealed is None:
            raise CredentialUnreadable("No login is stored for this feed. Send it again.")
        return str(sealed.decode())

    async def sample(self, count: int) -> list[tuple[str, str]]:
        """Return up to ``count`` random protected channels as pairs (URL, sealed credential)."""
        cids = await self._redis.call("SRANDMEMBER", keys.PROTECTED_CHANNELS, count)
        found = await self._redis.call_many(
            [("HMGET", keys.channel(cid.decode()), "url", "credential") for cid in cids]
        )
        return [(url.decode(), sealed.decode()) for url, sealed in found if url and sealed]
