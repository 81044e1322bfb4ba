-- Make a browser one that an account is known by, in place of the one it was before; drop the oldest of too many.
-- KEYS known browsers   ARGV member, member it had before, how long it is known in s, how many there are at most.
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now))
redis.call('ZADD', KEYS[1], string.format('%.6f', now + ARGV[3]), ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
