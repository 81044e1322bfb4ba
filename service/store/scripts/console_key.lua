-- Look up an API key, and note now and then that it is used.
-- KEYS keys, used   ARGV token's hash, now in Unix s, how old the last note may be in s. Returns the key or nil.
local key = redis.call('HGET', KEYS[1], ARGV[1])
if key and ARGV[2] - (redis.call('HGET', KEYS[2], ARGV[1]) or 0) >= tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
return key
