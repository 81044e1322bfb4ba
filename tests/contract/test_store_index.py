"""The channel index: whoever is in it all the while is found, whatever Redis goes through."""

from pathlib import Path

from service.settings import Settings
from service.stack.redis import PrivateRedis
from service.store import connect, keys

SUBSCRIBERS = 2_000
CHANNEL = "c" * 40


async def test_nobody_is_missed_when_redis_starts_again_between_two_pages(tmp_path: Path) -> None:
    """A restarted Redis walks its hashes in another order, in which an old cursor means nothing."""
    redis = PrivateRedis(tmp_path)
    await redis.start()
    store = await connect(Settings(redis_url=redis.url))
    try:
        subscribers = [str(number) for number in range(SUBSCRIBERS)]
        pairs = [value for uid in subscribers for value in (uid, 1)]
        await store.link.call("HSET", keys.channel_index(CHANNEL), *pairs)
        found, cursor = await store.index.page(CHANNEL, "", 500)
        await redis.stop()
        await redis.start()
        while cursor:
            entries, cursor = await store.index.page(CHANNEL, cursor, 500)
            found += entries
        assert {uid for uid, _ in found} == set(subscribers)
    finally:
        await store.close()
        await redis.stop()
