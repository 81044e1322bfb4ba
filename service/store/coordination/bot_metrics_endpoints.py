"""The URLs of running bots' metrics, which the console reads to collect the metrics."""

import time

from service.store.client import keys
from service.store.client.redis_client import RedisRepository

_ANNOUNCEMENT_TTL_S = 60.0


class BotMetricsEndpoints(RedisRepository):
    """Records the metrics URLs of all running bots.

    Workers publish their metrics URLs in the ring. Bots are not in the ring, so they announce theirs here.
    """

    async def announce(self, metrics_url: str) -> None:
        """Announce a bot's metrics URL for one minute. The caller has to repeat this before the minute ends.

        Raises :class:`StoreUnavailable` if Redis is unavailable.
        """
        now_s = time.time()
        await self._redis.call_many(
            [
                ("ZADD", keys.BOT_METRICS_URLS, now_s, metrics_url),
                ("ZREMRANGEBYSCORE", keys.BOT_METRICS_URLS, "-inf", now_s - _ANNOUNCEMENT_TTL_S),
            ]
        )

    async def withdraw(self, metrics_url: str) -> None:
        """Remove the metrics URL of a bot that stops.

        Raises :class:`StoreUnavailable` if Redis is unavailable.
        """
        await self._redis.call("ZREM", keys.BOT_METRICS_URLS, metrics_url)

    async def metrics_urls(self) -> list[str]:
        """Return the metrics URLs that bots have announced within the last minute and not withdrawn."""
        found = await self._redis.call(
            "ZRANGEBYSCORE", keys.BOT_METRICS_URLS, time.time() - _ANNOUNCEMENT_TTL_S, "+inf"
        )
        return [url.decode() for url in found]
