-- Keep a standing query, unless there are as many as may be. KEYS user, watches
-- ARGV jid, Watch (msgpack), most. Returns its number, 0 if there are too many.
if redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('HSETNX', KEYS[1], 'jid', ARGV[1])
local number = redis.call('HINCRBY', KEYS[1], 'watches', 1)
redis.call('HSET', KEYS[2], number, ARGV[2])
return number
