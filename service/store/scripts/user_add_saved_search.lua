-- Store a saved search, unless the user has the maximum.
-- KEYS: user, saved searches
-- ARGV: JID, saved search (msgpack), maximum
-- Reply: its number, or 0 at the maximum
if redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('HSETNX', KEYS[1], 'jid', ARGV[1])
local number = redis.call('HINCRBY', KEYS[1], 'watches', 1)
redis.call('HSET', KEYS[2], number, ARGV[2])
return number
