-- Join the ring if it has not changed since the caller read it (compare-and-set of its version).
-- KEYS: see ring_common
-- ARGV: expected version, node id, description of the node (JSON), TTL in ms
-- Reply: epoch of the node, which is the version of the ring with it, or 0 if the ring has changed
-- include ring_common
if version() ~= tonumber(ARGV[1]) or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  return 0
end
local epoch = log_change({ARGV[2]})
redis.call('HSET', KEYS[1], ARGV[2], string.format('%.0f ', epoch) .. ARGV[3])
redis.call('ZADD', KEYS[2], now_ms + tonumber(ARGV[4]), ARGV[2])
return epoch
