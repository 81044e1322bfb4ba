"""Hosts, and whole domains, that admins want nobody to ask for anything."""

from collections.abc import Sequence

import msgspec

from service.errors import HostBlocked, LimitReached
from service.net.sites import names_over
from service.store import keys
from service.store.link import Part

MOST_BLOCKED = 10_000
"""Every worker holds all of them."""


class Block(msgspec.Struct, frozen=True):
    """Who wants a host left alone, since when (Unix s), and ``why``, in their words."""

    by: str
    at_s: float
    why: str = ""


class Blocks(Part):
    """The list. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def all(self) -> dict[str, Block]:
        """Return the whole list, by host or domain."""
        found: dict[bytes, bytes] = await self._link.call("HGETALL", keys.BLOCKED_HOSTS)
        return {name.decode(): msgspec.json.decode(raw, type=Block) for name, raw in found.items()}

    async def over(self, hosts: Sequence[str]) -> list[str]:
        """Return what stands in the list for each of these hosts, in order; "" for nothing."""
        names = {host: names_over(host) for host in hosts if host}
        asked = list(dict.fromkeys(name for each in names.values() for name in each))
        if not asked:
            return [""] * len(hosts)
        found = await self._link.call("HMGET", keys.BLOCKED_HOSTS, *asked)
        listed = {name for name, raw in zip(asked, found, strict=True) if raw is not None}
        return [next((name for name in names.get(host, ()) if name in listed), "") for host in hosts]

    async def refuse(self, host: str) -> None:
        """Raise :class:`HostBlocked` if a host, or a domain that it is of, is in the list."""
        (name,) = await self.over([host])
        if name:
            raise HostBlocked("{host} is blocked here by an admin.", host=name)

    async def add(self, name: str, block: Block) -> None:
        """Have nobody ask a host, or the hosts of a domain, from the next maintenance interval on.

        Raises :class:`LimitReached` when ``MOST_BLOCKED`` are blocked.
        """
        if await self._link.call("HLEN", keys.BLOCKED_HOSTS) >= MOST_BLOCKED:
            raise LimitReached(f"{MOST_BLOCKED:,} hosts are blocked already. Block a domain instead of its hosts.")
        await self._link.call("HSET", keys.BLOCKED_HOSTS, name, msgspec.json.encode(block))

    async def lift(self, name: str) -> bool:
        """Take a host or domain off the list; False if it is not in it."""
        return bool(await self._link.call("HDEL", keys.BLOCKED_HOSTS, name))
