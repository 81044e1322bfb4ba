-- Record that a process refuses the store, so that all others do, too; not in another fleet's store, nor in one that
-- was accepted meanwhile.
-- KEYS: identity
-- ARGV: fleet id, accepted_ms as read, reason
local found = redis.call('HMGET', KEYS[1], 'fleet', 'accepted_ms')
if (not found[1] or found[1] == ARGV[1]) and tonumber(found[2] or 0) == tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'refused', ARGV[3])
end
