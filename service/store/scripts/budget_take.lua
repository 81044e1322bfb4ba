-- Take a token from each bucket, or from none, on Redis's clock. A negative number of tokens is a debt. A rate that
-- an admin set applies to every bucket. After a pause of the site, the rate begins at a sixteenth, doubles every
-- minute, and no burst is granted, for four minutes.
-- KEYS: pause, buckets, optionally the rate that an admin set
-- ARGV: minimum number of tokens to remain, time for which a pause is kept after its end (ms), then rate per s and size
--   of each bucket
-- Reply: {ms until each bucket has a token, ms until the pause ends}; {0, 0} if taken
-- include clock
local count = #ARGV / 2 - 1
local set_rate = KEYS[count + 2] and redis.call('GET', KEYS[count + 2])
local kept_ms = redis.call('PTTL', KEYS[1])
local least, share = tonumber(ARGV[1]), 1
if kept_ms > 0 then
  local ended_ms = tonumber(ARGV[2]) - kept_ms
  if ended_ms < 0 then
    return {0, -ended_ms}
  end
  share = math.min(1, 2 ^ math.floor(ended_ms / 60000) / 16)
end
local left, full_ms, wait_ms = {}, {}, 0
for i = 1, count do
  local held = redis.call('HMGET', KEYS[i + 1], 'tokens', 'at_ms')
  local passed_ms = math.max(0, now_ms - tonumber(held[2] or now_ms))
  local rate, most = tonumber(set_rate or ARGV[2 * i + 1]) * share, tonumber(ARGV[2 * i + 2])
  if share < 1 then
    most = 1
  end
  left[i] = math.min(most, tonumber(held[1] or most) + passed_ms * rate / 1000) - 1
  full_ms[i] = math.ceil((most - left[i]) * 1000 / rate)
  wait_ms = math.max(wait_ms, math.ceil((least - left[i]) * 1000 / rate))
end
if wait_ms > 0 then
  return {wait_ms, 0}
end
for i = 1, count do
  redis.call('HSET', KEYS[i + 1], 'tokens', tostring(left[i]), 'at_ms', string.format('%d', now_ms))
  redis.call('PEXPIRE', KEYS[i + 1], full_ms[i] + 60000)
end
return {0, 0}
