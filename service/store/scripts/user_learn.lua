-- Remember a field of a user whom we know; one who has asked to be forgotten is not made again by what comes late.
-- KEYS user   ARGV field, value
return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) or 0
