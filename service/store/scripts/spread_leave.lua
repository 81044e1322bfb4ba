-- Free the parts of a process that shares them no more: because it ends, or ('dead') because its lease has ended.
-- KEYS holders, parts   ARGV holder, and perhaps 'dead'. Returns 1 if it is gone.
if ARGV[2] then
  local now = redis.call('TIME')
  local until_ms = redis.call('ZSCORE', KEYS[1], ARGV[1])
  if until_ms and tonumber(until_ms) >= now[1] * 1000 + math.floor(now[2] / 1000) then
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
