-- Count a login attempt on every counter, or on none if one is at its limit.
-- KEYS counters   ARGV for each: its limit, its window in ms. Returns for how long to wait in ms; 0 if allowed.
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
