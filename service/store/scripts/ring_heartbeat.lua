-- Renew a lease, remove expired nodes, and return what has changed in the ring since the version that the caller has. A
-- node without a lease, or a lease without a node, is the result of a loss of data and is removed, too. The numbers of
-- nodes and leases then differ, at the latest when the lease, which no process can renew, has expired.
-- KEYS: see ring_common
-- ARGV: node id ('' to only read), epoch, TTL in ms, version that the caller has
-- Reply: {1 if the lease is valid, version, now in ms, 1 if the ring is whole, {id, value or nil if it left, …} of the
--   nodes that changed or of the whole ring, ids of removed nodes}. The ring is whole if the log of changes does not
--   contain the caller's version, or if the nodes that changed are more than those of the ring.
-- include ring_common
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
  log_change(expired)
end
local present, known = version(), tonumber(ARGV[4])
if present < known then -- Redis has lost changes: a later version, because nodes ignore what an earlier one assigns
  present = log_change({}, known)
end
if present == known then
  return {held, present, now_ms, 0, {}, expired}
end
local since = redis.call('XRANGE', KEYS[3], ARGV[4] .. '-0', '+')
if not since[1] or since[1][1] ~= ARGV[4] .. '-0' then
  return {held, present, now_ms, 1, redis.call('HGETALL', KEYS[1]), expired}
end
local changed, seen = {}, {}
for place = 2, #since do
  for id in string.gmatch(since[place][2][2], '%x+') do
    if not seen[id] then
      seen[id] = true
      changed[#changed + 1] = id
      changed[#changed + 1] = redis.call('HGET', KEYS[1], id)
    end
  end
end
if #changed > 2 * redis.call('HLEN', KEYS[1]) then
  return {held, present, now_ms, 1, redis.call('HGETALL', KEYS[1]), expired}
end
return {held, present, now_ms, 0, changed, expired}
