-- Take one token from a host's or a channel's bucket, on Redis's clock. KEYS bucket   ARGV tokens per s, most tokens
-- Returns 0 when granted, else the ms until a token is there.
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local rate, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at_ms')
local tokens = tonumber(held[1] or ARGV[2])
local passed_ms = math.max(0, now_ms - tonumber(held[2] or now_ms))
tokens = math.min(most, tokens + passed_ms * rate / 1000)
local wait_ms = 0
if tokens >= 1 then
  tokens = tokens - 1
else
  wait_ms = math.ceil((1 - tokens) * 1000 / rate)
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at_ms', string.format('%d', now_ms))
redis.call('PEXPIRE', KEYS[1], math.ceil(most * 1000 / rate) + 60000)
return wait_ms
