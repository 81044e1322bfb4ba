-- Take a token of a channel's poll budget, unless the channel is paused, on Redis's clock.
-- KEYS: pause, bucket
-- ARGV: rate per s, size of the bucket
-- Reply: {ms until the pause ends, ms until there is a token}; {0, 0} if taken
local paused_ms = redis.call('PTTL', KEYS[1])
if paused_ms > 0 then
  return {paused_ms, 0}
end
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local rate, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local held = redis.call('HMGET', KEYS[2], 'tokens', 'at_ms')
local passed_ms = math.max(0, now_ms - tonumber(held[2] or now_ms))
local left = math.min(most, tonumber(held[1] or most) + passed_ms * rate / 1000) - 1
if left < 0 then
  return {0, math.ceil(-left * 1000 / rate)}
end
redis.call('HSET', KEYS[2], 'tokens', tostring(left), 'at_ms', string.format('%d', now_ms))
redis.call('PEXPIRE', KEYS[2], math.ceil((most - left) * 1000 / rate) + 60000)
return {0, 0}
