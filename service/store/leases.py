"""Leases with one holder, fenced by an epoch: which bot delivers, which keeper keeps."""

from service.store import keys
from service.store.link import Link


class Leases:
    """Named leases on Redis's clock."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def hold(self, name: str, holder: str, ttl_s: float) -> int | None:
        """Take or renew the lease; return its epoch, or None if another has it.

        The epoch grows with every change of holder.
        """
        epoch: int = await self._link.script("lease_hold", (keys.lease(name),), holder, int(ttl_s * 1000))
        return epoch or None

    async def release(self, name: str, holder: str) -> None:
        """Give it back, if it is ours."""
        await self._link.script("lease_release", (keys.lease(name),), holder)
