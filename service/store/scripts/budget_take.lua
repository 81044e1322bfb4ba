-- Take a token from each bucket, or from none, on Redis's clock. A negative number of tokens is a debt. A rate that
-- an admin set applies to every bucket.
-- KEYS: rate set by an admin, buckets
-- ARGV: minimum number of tokens to remain, then rate per s and size of each bucket
-- Reply: 0 if taken, else ms until each bucket has a token
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local set_rate = redis.call('GET', KEYS[1])
local least = tonumber(ARGV[1])
local left, full_ms, wait_ms = {}, {}, 0
for i = 2, #KEYS do
  local held = redis.call('HMGET', KEYS[i], 'tokens', 'at_ms')
  local passed_ms = math.max(0, now_ms - tonumber(held[2] or now_ms))
  local rate, most = tonumber(set_rate or ARGV[2 * i - 2]), tonumber(ARGV[2 * i - 1])
  left[i] = math.min(most, tonumber(held[1] or most) + passed_ms * rate / 1000) - 1
  full_ms[i] = math.ceil((most - left[i]) * 1000 / rate)
  wait_ms = math.max(wait_ms, math.ceil((least - left[i]) * 1000 / rate))
end
if wait_ms > 0 then
  return wait_ms
end
for i = 2, #KEYS do
  redis.call('HSET', KEYS[i], 'tokens', tostring(left[i]), 'at_ms', string.format('%d', now_ms))
  redis.call('PEXPIRE', KEYS[i], full_ms[i] + 60000)
end
return 0
