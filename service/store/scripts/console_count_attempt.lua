-- Count a login attempt in every counter, or in none if one is at its limit.
-- KEYS: counters
-- ARGV: limit and window in ms of each counter
-- Reply: 0 if the attempt is allowed, else for how long to wait in ms
local wait_ms = 0
for i, key in ipairs(KEYS) do
  if tonumber(redis.call('GET', key) or 0) >= tonumber(ARGV[2 * i - 1]) then
    wait_ms = math.max(wait_ms, redis.call('PTTL', key), 1)
  end
end
if wait_ms > 0 then
  return wait_ms
end
for i, key in ipairs(KEYS) do
  if redis.call('INCR', key) == 1 then
    redis.call('PEXPIRE', key, ARGV[2 * i])
  end
end
return 0
