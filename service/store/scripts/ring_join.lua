-- Join the ring if it has not changed since the caller read it (compare-and-set of its version).
-- KEYS: nodes, leases, version, epoch
-- ARGV: expected version, node id, NodeInfo (JSON, its epoch is ignored), TTL in ms
-- Reply: {1, epoch, version}, or {0, current version}
local version = tonumber(redis.call('GET', KEYS[3]) or '0')
if version ~= tonumber(ARGV[1]) or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  return {0, version}
end
local epoch = redis.call('INCR', KEYS[4])
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[2], epoch .. ' ' .. ARGV[3])
redis.call('ZADD', KEYS[2], now_ms + tonumber(ARGV[4]), ARGV[2])
return {1, epoch, redis.call('INCR', KEYS[3])}
