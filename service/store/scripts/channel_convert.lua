-- Replace the record of a former version, unless the channel has changed since it was read.
-- KEYS: channel, log of the former version
-- ARGV: version, epoch, number of fields to delete, these fields, then field and value of each field to set
if redis.call('HEXISTS', KEYS[1], 'snapshot') == 1 then
  return
end
local found = redis.call('HMGET', KEYS[1], 'version', 'epoch')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then
  return
end
local first = 4 + ARGV[3]
for i = 4, first - 1 do
  redis.call('HDEL', KEYS[1], ARGV[i])
end
for i = first, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('DEL', KEYS[2])
