-- Have a channel take over from one that moved, and keep, until all subscribers are here, at which version they join.
-- One that does not exist, dozes, or has moved itself goes on from what the other knew; one that is polled needs not.
-- KEYS channel, log, joining   ARGV the other's id, expected version (0: none), version to join at if it is polled,
--                              snapshot delta, field, value, …
-- Returns {1, version to join at}, or {0, current version}.
local found = redis.call('HMGET', KEYS[1], 'url', 'version', 'dormant', 'moved_to')
local joins_at = redis.call('HGET', KEYS[3], ARGV[1])
if found[1] and joins_at then
  return {1, tonumber(joins_at)}
end
local version = tonumber(found[2] or '0')
if version ~= tonumber(ARGV[2]) then
  return {0, version}
end
joins_at = ARGV[3]
if not found[1] or found[3] or found[4] then
  if not found[1] then
    redis.call('DEL', KEYS[1], KEYS[2])
    local now = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'epoch', string.format('%d', now[1] * 1000000 + now[2])) -- see channel_create
  end
  joins_at = version + 1
  redis.call('HDEL', KEYS[1], 'cursor', 'dormant', 'moved_to', 'condition', 'failing_since', 'refusals', 'evidence')
  for i = 5, #ARGV, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  redis.call('HSET', KEYS[1], 'version', joins_at, 'fanned', joins_at)
  redis.call('XADD', KEYS[2], joins_at .. '-0', 'd', ARGV[4])
end
redis.call('HSET', KEYS[3], ARGV[1], joins_at)
return {1, tonumber(joins_at)}
