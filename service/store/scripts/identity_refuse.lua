-- Record that a process refuses the store, so that all other processes refuse it, too. Nothing is recorded in the store
-- of another fleet, or in a store that was accepted meanwhile.
-- KEYS: identity
-- ARGV: fleet id, accepted_ms as read, reason
local found = redis.call('HMGET', KEYS[1], 'fleet', 'accepted_ms')
if (not found[1] or found[1] == ARGV[1]) and tonumber(found[2] or 0) == tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'refused', ARGV[3])
end
