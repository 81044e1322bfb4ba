-- Version a delta: compare-and-set of the channel's version, fenced by its owner's epoch.
-- KEYS channel, log   ARGV epoch, base version, delta, silent ('1' or '0'), log length, field, value, …
-- Returns {1, new version}, {0, 'epoch', current}, {0, 'version', current} or {0, 'gone', 0}.
local found = redis.call('HMGET', KEYS[1], 'url', 'epoch', 'version', 'fanned')
if not found[1] then
  return {0, 'gone', 0}
end
if found[2] ~= ARGV[1] then
  return {0, 'epoch', tonumber(found[2])}
end
if found[3] ~= ARGV[2] then
  return {0, 'version', tonumber(found[3])}
end
local version = tonumber(found[3]) + 1
for i = 6, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'version', version)
redis.call('HDEL', KEYS[1], 'dormant')
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], version .. '-0', 'd', ARGV[3])
if ARGV[4] == '1' and found[4] == found[3] then
  redis.call('HSET', KEYS[1], 'fanned', version)
end
return {1, version}
