-- Record that a channel or its subscribers have changed.
-- KEYS: changed channels, counter
-- ARGV: channel id, maximum number of channels kept
local number = redis.call('HINCRBY', KEYS[2], 'last', 1)
redis.call('ZADD', KEYS[1], number, ARGV[1])
local surplus = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[2])
if surplus > 0 then
  local removed = redis.call('ZPOPMIN', KEYS[1], surplus)
  redis.call('HSET', KEYS[2], 'removed', removed[#removed])
end
