"""Hosts that admins have blocked: publishers that workers must not contact, and domains whose users bots refuse."""

from collections.abc import Sequence

import msgspec

from service.errors import HostBlocked, LimitReached
from service.net.sites_and_networks import host_and_parent_domains
from service.store.client import keys
from service.store.client.redis_client import RedisClient, RedisRepository

MAX_BLOCKED_HOSTS = 10_000
"""Maximum number of blocked hosts and domains: every worker keeps all of them in memory."""


class HostBlock(msgspec.Struct, frozen=True):
    """A block of a host or domain.

    - ``by``: name of the admin who set the block.
    - ``at_s``: when the block was set (Unix s).
    - ``why``: the reason, in the admin's own words.
    """

    by: str
    at_s: float
    why: str = ""


class BlockedHosts(RedisRepository):
    """A list of hosts and domains that admins have blocked.

    There are two such lists: one for publishers and one for users' XMPP servers. Every method may raise
    :class:`service.errors.StoreUnavailable`.
    """

    def __init__(self, redis: RedisClient, key: str = keys.BLOCKED_HOSTS) -> None:
        """Create an accessor for the list of blocked hosts and domains stored at ``key``."""
        super().__init__(redis)
        self._key = key

    async def is_empty(self) -> bool:
        """Return whether no host or domain is blocked."""
        return not await self._redis.call("HLEN", self._key)

    async def all(self) -> dict[str, HostBlock]:
        """Return a mapping from each blocked host or domain to its block."""
        found: dict[bytes, bytes] = await self._redis.call("HGETALL", self._key)
        return {name.decode(): msgspec.json.decode(raw, type=HostBlock) for name, raw in found.items()}

    async def matching(self, hosts: Sequence[str]) -> list[str]:
        """Return, for each host in order, the entry of the list that blocks it; "" if the host is not blocked.

        The entry is either the host itself or a domain that contains the host.
        """
        names = {host: host_and_parent_domains(host) for host in hosts if host}
        asked = list(dict.fromkeys(name for each in names.values() for name in each))
        if not asked:
            return [""] * len(hosts)
        found = await self._redis.call("HMGET", self._key, *asked)
        listed = {name for name, raw in zip(asked, found, strict=True) if raw is not None}
        return [next((name for name in names.get(host, ()) if name in listed), "") for host in hosts]

    async def check(self, host: str) -> None:
        """Raise :class:`HostBlocked` if ``host``, or a domain that contains it, is blocked."""
        (name,) = await self.matching([host])
        if name:
            raise HostBlocked("{host} is blocked here by an admin.", host=name)

    async def add(self, name: str, block: HostBlock) -> None:
        """Block the host or domain ``name``. Blocking a domain blocks all hosts in it.

        Workers reread the list of blocked publishers periodically, so the block takes effect after a short delay.
        Raises :class:`LimitReached` if ``MAX_BLOCKED_HOSTS`` hosts are already blocked.
        """
        if await self._redis.call("HLEN", self._key) >= MAX_BLOCKED_HOSTS:
            raise LimitReached(f"{MAX_BLOCKED_HOSTS:,} names are blocked already. Block a domain instead of its hosts.")
        await self._redis.call("HSET", self._key, name, msgspec.json.encode(block))

    async def remove(self, name: str) -> bool:
        """Unblock a host or domain; return False if it was not blocked."""
        return bool(await self._redis.call("HDEL", self._key, name))
