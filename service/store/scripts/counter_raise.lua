-- Raise a number to at least a value, and let it expire.
-- KEYS: string
-- ARGV: value, TTL in s
local held = tonumber(redis.call('GET', KEYS[1]) or 0)
redis.call('SET', KEYS[1], math.max(held, tonumber(ARGV[1])), 'EX', ARGV[2])
