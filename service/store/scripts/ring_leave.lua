-- Leave the ring, if the lease has this epoch.
-- KEYS: see ring_common
-- ARGV: node id, epoch
-- include ring_common
local mine = redis.call('HGET', KEYS[1], ARGV[1])
if not mine or string.match(mine, '^(%d+) ') ~= ARGV[2] then
  return
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
log_change({ARGV[1]})
