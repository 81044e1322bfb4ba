-- Record that the erasure of a user begins, and when; forget erasures from long ago.
-- KEYS: users being erased, erased users
-- ARGV: user id, how long erasures are listed (s)
local now = tonumber(redis.call('TIME')[1])
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], now, ARGV[1])
return redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[2])
