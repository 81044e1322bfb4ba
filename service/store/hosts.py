"""What the whole fleet may ask of publishers: token buckets and pauses, on Redis's clock."""

from service.model import ChannelId
from service.store import keys
from service.store.link import Link

SECONDS_PER_HOUR = 3600.0
_POLLS_IN_A_ROW = 3


class Hosts:
    """Budgets of hosts, by name, and of single channels, whether or not the store has these."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def take(self, host: str, requests_per_s: float, burst: int = 5) -> float:
        """Take one request's token; return 0.0 if granted, else the seconds until one is there."""
        return await self._take(keys.host(host), requests_per_s, burst)

    async def take_poll(self, cid: ChannelId, polls_per_hour: float) -> float:
        """Take one of a channel's polls; return 0.0 if granted, else the seconds until there is one."""
        return await self._take(keys.poll_budget(cid), polls_per_hour / SECONDS_PER_HOUR, _POLLS_IN_A_ROW)

    async def pause(self, cid: ChannelId, for_s: float) -> None:
        """Have nobody ask a channel's publisher for it for so long; the latest wish counts."""
        await self._link.call("SET", keys.pause(cid), "1", "PX", max(1, int(for_s * 1000)))

    async def paused_s(self, cid: ChannelId) -> float:
        """Return how much of a channel's pause is left; 0.0 if there is none."""
        left_ms: int = await self._link.call("PTTL", keys.pause(cid))
        return max(0, left_ms) / 1000

    async def _take(self, key: str, tokens_per_s: float, most: int) -> float:
        wait_ms: int = await self._link.script("host_take", (key,), tokens_per_s, most)
        return wait_ms / 1000
