-- Join the ring if it has not changed since the caller read it (compare-and-set of its version).
-- KEYS: nodes, leases, version, epoch
-- ARGV: expected version, node id, NodeInfo (JSON, its epoch is ignored), TTL in ms
-- Reply: {1, epoch, version}, or {0, current version}
local version = tonumber(redis.call('GET', KEYS[3]) or '0')
if version ~= tonumber(ARGV[1]) or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  return {0, version}
end
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
-- At least the time in µs: a Redis that has lost the counter does not give an epoch twice.
local epoch = math.max(tonumber(redis.call('GET', KEYS[4]) or '0') + 1, now[1] * 1000000 + now[2])
local epoch_text = string.format('%.0f', epoch)
redis.call('SET', KEYS[4], epoch_text)
redis.call('HSET', KEYS[1], ARGV[2], epoch_text .. ' ' .. ARGV[3])
redis.call('ZADD', KEYS[2], now_ms + tonumber(ARGV[4]), ARGV[2])
return {1, epoch, redis.call('INCR', KEYS[3])}
