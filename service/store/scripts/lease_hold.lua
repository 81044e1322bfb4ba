-- Take or renew a single-holder lease. KEYS lease   ARGV holder, ttl ms. Returns the epoch, or 0 if another holds it.
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder and holder ~= ARGV[1] and tonumber(redis.call('HGET', KEYS[1], 'until_ms')) >= now_ms then
  return 0
end
if holder ~= ARGV[1] then
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'until_ms', now_ms + tonumber(ARGV[2]))
return tonumber(redis.call('HGET', KEYS[1], 'epoch'))
