"""Everything in one Redis at one moment."""

from service.store import Store

_DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    found[#found + 1] = {key, redis.call('DUMP', key), redis.call('TTL', key)}
end
return found
"""


async def redis_contents(store: Store, *, expiring: bool = True) -> dict[bytes, bytes]:
    """Return the keys with their values as DUMP writes them, by default also keys that expire.

    One script reads all of them: a key between KEYS and DUMP could expire or be deleted.
    """
    found = await store.redis.call("EVAL", _DUMP, 0)
    return {key: value for key, value, ttl_s in found if expiring or ttl_s == -1}
