"""One budget per publisher's host over the whole fleet: a token bucket on Redis's clock."""

from service.store import keys
from service.store.link import Link


class Hosts:
    """Token buckets, by host name."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def take(self, host: str, requests_per_s: float, burst: int = 5) -> float:
        """Take one request's token; return 0.0 if granted, else the seconds until one is there."""
        wait_ms: int = await self._link.script("host_take", (keys.host(host),), requests_per_s, burst)
        return wait_ms / 1000
