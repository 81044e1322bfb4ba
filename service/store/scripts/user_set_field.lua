-- Set a field of a known user. An erased user is not created again by late writes.
-- KEYS: user
-- ARGV: field, value
return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) or 0
