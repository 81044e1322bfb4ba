-- Remove a feed from the queue of an import, and record what became of it.
-- KEYS: queued feeds, counts, failed feeds
-- ARGV: 1 the queued feed, 2 the count to increment, 3 the failed feed ('' if it did not fail)
-- Reply: 1, or 0 if the feed is not queued
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
  return 0
end
if ARGV[3] ~= '' then
  redis.call('RPUSH', KEYS[3], ARGV[3])
else
  redis.call('HINCRBY', KEYS[2], ARGV[2], 1)
end
return 1
