-- Keep the content name of an existing channel, unless a later version of the channel has one already.
-- KEYS channel   ARGV the version that the name was made of, its AV-pairs ('' for none). Returns 1 if it is kept.
local found = redis.call('HMGET', KEYS[1], 'url', 'named')
if not found[1] or tonumber(found[2] or '0') > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'named', ARGV[1], 'name', ARGV[2])
return 1
