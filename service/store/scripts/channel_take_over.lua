-- Make a channel the successor of a channel that has moved. The version at which the subscribers of the moved channel
-- join is recorded until all have joined. A successor that does not exist, is dormant, or has moved itself continues
-- from the given snapshot; a successor that is polled continues from its own state.
-- KEYS: channel, incoming moves
-- ARGV: id of the channel that has moved, expected version (0: none), version to join at if the successor is polled,
--   number of fields to delete, these fields, then field and value of each field to set
-- Reply: {1, version to join at}, or {0, current version} if it is not the expected one
local found = redis.call('HMGET', KEYS[1], 'url', 'version', 'dormant', 'moved_to')
local joins_at = redis.call('HGET', KEYS[2], ARGV[1])
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
    redis.call('DEL', KEYS[1])
    local now = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'epoch', string.format('%d', now[1] * 1000000 + now[2])) -- see channel_create
  end
  joins_at = version + 1
  redis.call('HDEL', KEYS[1], 'cursor', 'dormant', 'moved_to', 'condition', 'failing_since', 'failed', 'backoff', 'evidence')
  local first = 5 + ARGV[4]
  for i = 5, first - 1 do
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
  redis.call('HSET', KEYS[1], unpack(ARGV, first))
  redis.call('HSET', KEYS[1], 'version', joins_at, 'fanned', joins_at)
end
redis.call('HSET', KEYS[2], ARGV[1], joins_at)
return {1, tonumber(joins_at)}
