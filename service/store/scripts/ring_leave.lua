-- Leave the ring, if the lease has this epoch.
-- KEYS: nodes, leases, version
-- ARGV: node id, epoch
-- Reply: 1 if the node left, else 0
local mine = redis.call('HGET', KEYS[1], ARGV[1])
if not mine or string.match(mine, '^(%d+) ') ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('INCR', KEYS[3])
return 1
