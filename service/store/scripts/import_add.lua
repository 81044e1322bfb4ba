-- Add feeds and problems of an OPML list to an import, unless too many feeds would be queued.
-- KEYS: queued feeds, counts, failed feeds
-- ARGV: 1 maximum number of queued feeds, 2 now (Unix s), 3 id of the import if it is new, 4 number of feeds, feeds,
--   problems
-- Reply: 1 if they were added, else 0
local count = tonumber(ARGV[4])
if redis.call('LLEN', KEYS[1]) + count > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSETNX', KEYS[2], 'id', ARGV[3])
redis.call('HSET', KEYS[2], 'started_s', ARGV[2])
for place = 5, #ARGV do
  redis.call('RPUSH', place < 5 + count and KEYS[1] or KEYS[3], ARGV[place])
end
return 1
