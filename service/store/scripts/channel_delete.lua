-- Delete a channel. The first call keeps the site, by which its last subscriptions are found; the second deletes it,
-- too.
-- KEYS: channel, poll results, incoming moves, units of its fan-out
-- ARGV: '' in the first call, '1' in the second
local found = redis.call('HMGET', KEYS[1], 'url', 'site')
if ARGV[1] == '1' then
  if not found[1] then
    redis.call('DEL', KEYS[1])
  end
  return
end
redis.call('DEL', unpack(KEYS))
if found[2] then
  redis.call('HSET', KEYS[1], 'site', found[2])
end
