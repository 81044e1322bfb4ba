"""Where bots serve their metrics, for those who look at the whole of Coronet: bots are not on the ring."""

import time

from service.store import keys
from service.store.link import Part

_BELIEVED_S = 60.0


class Bots(Part):
    """The bots that live, whether they serve or stand by."""

    async def announce(self, metrics_url: str) -> None:
        """Tell where a bot's metrics are; to be repeated well within a minute. Raises :class:`StoreUnavailable`."""
        now_s = time.time()
        await self._link.many(
            [
                ("ZADD", keys.BOTS, now_s, metrics_url),
                ("ZREMRANGEBYSCORE", keys.BOTS, "-inf", now_s - _BELIEVED_S),
            ]
        )

    async def metrics_urls(self) -> list[str]:
        """Return where the metrics of bots are that told so within the last minute."""
        found = await self._link.call("ZRANGEBYSCORE", keys.BOTS, time.time() - _BELIEVED_S, "+inf")
        return [url.decode() for url in found]
