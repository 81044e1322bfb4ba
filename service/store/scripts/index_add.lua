-- Put a user into a channel's index, unless a later change of mind is already there.
-- KEYS channel index, channel   ARGV user id, seq
-- Returns {added, the channel's version}; the version is -1 if the channel does not exist.
local version = tonumber(redis.call('HGET', KEYS[2], 'version') or '-1')
if version < 0 then
  return {0, -1}
end
local seq = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '-1')
if seq >= tonumber(ARGV[2]) then
  return {0, version}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {1, version}
