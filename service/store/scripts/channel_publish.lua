-- Add a version to a channel: a compare-and-set of its version, fenced by the owner's epoch. A condition that was
-- announced is a field of the channel and gets no second version. A channel that has moved gets no further versions,
-- and is not dormant until all its subscribers have moved.
-- KEYS: channel
-- ARGV: epoch, base version, '1' if silent, field and value of the notice ('' for content), number of fields to delete,
--   these fields, then field and value of each field to set
-- Reply: {1, version}, {0, 'epoch', current}, {0, 'version', current}, {0, 'moved', current} or {0, 'gone', 0}
local found = redis.call('HMGET', KEYS[1], 'url', 'epoch', 'version', 'fanned', 'moved_to', 'condition')
if not found[1] then
  return {0, 'gone', 0}
end
if found[2] ~= ARGV[1] then
  return {0, 'epoch', tonumber(found[2])}
end
if found[5] then
  return {0, 'moved', tonumber(found[3])}
end
if ARGV[4] == 'condition' and (found[6] or '') == ARGV[5] then
  return {1, tonumber(found[3])}
end
if found[3] ~= ARGV[2] then
  return {0, 'version', tonumber(found[3])}
end
local version = tonumber(found[3]) + 1
local first = 7 + ARGV[6]
for i = 7, first - 1 do
  redis.call('HDEL', KEYS[1], ARGV[i])
end
redis.call('HSET', KEYS[1], unpack(ARGV, first))
if ARGV[4] == '' or ARGV[4] == 'moved_to' then
  redis.call('HDEL', KEYS[1], 'dormant')
end
if ARGV[4] ~= '' and ARGV[5] == '' then
  redis.call('HDEL', KEYS[1], ARGV[4])
elseif ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[4], ARGV[5])
end
redis.call('HSET', KEYS[1], 'version', version)
if ARGV[3] == '1' and found[4] == found[3] then
  redis.call('HSET', KEYS[1], 'fanned', version)
end
return {1, version}
