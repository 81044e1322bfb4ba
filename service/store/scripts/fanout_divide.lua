-- Divide the fan-out of a channel's next version into units, fenced by the owner's epoch. A fan-out that is divided
-- already stays as it is.
-- KEYS: channel, units
-- ARGV: epoch, version, value of the channel's field cursor for a divided fan-out, TTL of the units (s), then label of
--   the key group and cursor of each unit
-- Reply: 1, or 0 if the epoch is another owner's or the version is not the next one
local found = redis.call('HMGET', KEYS[1], 'epoch', 'cursor', 'fanned')
if found[1] ~= ARGV[1] or tonumber(found[3] or '0') + 1 ~= tonumber(ARGV[2]) then
  return 0
end
if found[2] == ARGV[3] and redis.call('HGET', KEYS[2], 'version') == ARGV[2] then
  return 1
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'version', ARGV[2], 'queued', 0)
for i = 5, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], '0 - ' .. ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('HSET', KEYS[1], 'cursor', ARGV[3])
return 1
