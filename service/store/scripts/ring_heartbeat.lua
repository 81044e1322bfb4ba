-- Renew a lease, remove expired nodes, and return the ring if the caller lacks its version. A node without a lease,
-- or a lease without a node, is the result of a loss of data and is removed, too. Their numbers then differ, or will
-- when the lease, which nobody can renew, expires.
-- KEYS: nodes, leases, version
-- ARGV: node id ('' to only read), epoch, TTL in ms, version that the caller has
-- Reply: {1 if the lease is valid, version, now in ms, {id, value, …} or nil, ids of removed nodes}
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local held = 0
local mine = redis.call('HGET', KEYS[1], ARGV[1])
if mine and string.match(mine, '^(%d+) ') == ARGV[2] then
  local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
  if ends and tonumber(ends) >= now_ms then
    redis.call('ZADD', KEYS[2], now_ms + tonumber(ARGV[3]), ARGV[1])
    held = 1
  end
end
local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. now_ms)
for _, id in ipairs(expired) do
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end
if redis.call('HLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    if not redis.call('ZSCORE', KEYS[2], id) then
      redis.call('HDEL', KEYS[1], id)
      expired[#expired + 1] = id
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if redis.call('HEXISTS', KEYS[1], id) == 0 then
      redis.call('ZREM', KEYS[2], id)
      expired[#expired + 1] = id
    end
  end
end
if #expired > 0 then
  redis.call('INCR', KEYS[3])
end
local version = tonumber(redis.call('GET', KEYS[3]) or '0')
local nodes = false
if version ~= tonumber(ARGV[4]) then
  nodes = redis.call('HGETALL', KEYS[1])
end
return {held, version, now_ms, nodes, expired}
