-- Record the progress of a fan-out, fenced by the owner's epoch. A complete fan-out that was divided has no more units.
-- KEYS: channel, units
-- ARGV: epoch, version, cursor ('' if the version is complete), cursor of a divided fan-out
-- Reply: 1, or 0 if the epoch is another owner's
local found = redis.call('HMGET', KEYS[1], 'epoch', 'cursor')
if found[1] ~= ARGV[1] then
  return 0
end
if ARGV[3] == '' then
  redis.call('HSET', KEYS[1], 'fanned', ARGV[2])
  redis.call('HDEL', KEYS[1], 'cursor')
  if found[2] == ARGV[4] then
    redis.call('DEL', KEYS[2])
  end
else
  redis.call('HSET', KEYS[1], 'cursor', ARGV[3])
end
return 1
