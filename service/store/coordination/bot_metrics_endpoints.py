"""The metrics endpoints of running bots, which the console reads."""

import time

from service.store.client import keys
from service.store.client.redis_client import RedisRepository

_ANNOUNCEMENT_TTL_S = 60.0


class BotMetricsEndpoints(RedisRepository):
    """Metrics URLs of all running bots. Bots are not in the ring of workers, so they announce their URLs here."""

    async def announce(self, metrics_url: str) -> None:
        """Announce the URL of a bot's metrics for one minute; the caller repeats the call before the minute ends.

        Raises :class:`StoreUnavailable` if Redis is unavailable.
        """
        now_s = time.time()
        await self._redis.call_many(
            [
                ("ZADD", keys.BOT_METRICS_URLS, now_s, metrics_url),
                ("ZREMRANGEBYSCORE", keys.BOT_METRICS_URLS, "-inf", now_s - _ANNOUNCEMENT_TTL_S),
            ]
        )

    async def metrics_urls(self) -> list[str]:
        """Return the URLs that were announced within the last minute."""
        found = await self._redis.call(
            "ZRANGEBYSCORE", keys.BOT_METRICS_URLS, time.time() - _ANNOUNCEMENT_TTL_S, "+inf"
        )
        return [url.decode() for url in found]
