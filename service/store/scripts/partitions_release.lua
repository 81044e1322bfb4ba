-- Release the partitions of a process that shuts down, or ('dead') whose lease has ended.
-- KEYS: leases, partitions
-- ARGV: process, optionally 'dead'
-- Reply: 1, or 0 if its lease has not ended
-- include clock
if ARGV[2] then
  local until_ms = redis.call('ZSCORE', KEYS[1], ARGV[1])
  if until_ms and tonumber(until_ms) >= now_ms then
    return 0
  end
end
redis.call('ZREM', KEYS[1], ARGV[1])
local held = redis.call('HGETALL', KEYS[2])
for i = 1, #held, 2 do
  if held[i + 1] == ARGV[1] then
    redis.call('HDEL', KEYS[2], held[i])
  end
end
return 1
