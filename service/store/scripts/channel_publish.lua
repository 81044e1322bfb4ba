-- Add a version to a channel: a compare-and-set of its version, fenced by the owner's epoch. A condition that was
-- announced is a field of the channel and gets no second version. A channel that has moved gets no further versions,
-- and is not dormant until all its subscribers have moved.
-- KEYS: channel, log
-- ARGV: epoch, base version, delta, '1' if silent, length of the log, field and value of the notice ('' for content),
--   then field and value of each field
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
if ARGV[6] == 'condition' and (found[6] or '') == ARGV[7] then
  return {1, tonumber(found[3])}
end
if found[3] ~= ARGV[2] then
  return {0, 'version', tonumber(found[3])}
end
local version = tonumber(found[3]) + 1
for i = 8, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
if ARGV[6] == '' or ARGV[6] == 'moved_to' then
  redis.call('HDEL', KEYS[1], 'dormant')
end
if ARGV[6] ~= '' and ARGV[7] == '' then
  redis.call('HDEL', KEYS[1], ARGV[6])
elseif ARGV[6] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[6], ARGV[7])
end
redis.call('HSET', KEYS[1], 'version', version)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], version .. '-0', 'd', ARGV[3])
if ARGV[4] == '1' and found[4] == found[3] then
  redis.call('HSET', KEYS[1], 'fanned', version)
end
return {1, version}
