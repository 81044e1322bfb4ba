-- Add a known browser of an account in place of its earlier entry; drop expired ones, and the oldest above the
-- maximum.
-- KEYS: known browsers
-- ARGV: hash, hash of the earlier entry, validity in s, maximum number
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now))
redis.call('ZADD', KEYS[1], string.format('%.6f', now + ARGV[3]), ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
