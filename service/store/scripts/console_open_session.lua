-- Store a session, and drop expired ones from the list.
-- KEYS: sessions, session
-- ARGV: id, validity in s, session
local now = tonumber(redis.call('TIME')[1])
redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
