-- reads only
-- A bucket of standing queries, and how far its log has come. KEYS bucket, log
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
return {newest and newest[1] or '0-0', redis.call('HGETALL', KEYS[1])}
