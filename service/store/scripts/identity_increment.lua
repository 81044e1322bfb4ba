-- Increment the counter of the store if it is due, or give a new store its identity; see identity.py.
-- KEYS: identity
-- ARGV: trusted fleet id or '', least counter that is trusted, id for a store without one ('' if it must have one),
--   interval of increments in ms, version of the stored data and oldest version that programs must know, for a store
--   without them
-- Reply: {fleet, counter, grown_ms, accepted_ms, refused, schema, needs}
local fields = {'fleet', 'counter', 'grown_ms', 'accepted_ms', 'refused', 'schema', 'needs'}
local found = redis.call('HMGET', KEYS[1], unpack(fields))
if found[5] then
  return found
end
-- include clock
if not found[1] then
  if ARGV[3] ~= '' then
    redis.call('HSET', KEYS[1], 'fleet', ARGV[3], 'counter', 1, 'grown_ms', now_ms, 'schema', ARGV[5], 'needs', ARGV[6])
  end
elseif (ARGV[1] == '' or found[1] == ARGV[1]) and tonumber(found[2]) >= tonumber(ARGV[2]) then
  local since = now_ms - tonumber(found[3])
  if since < 0 or since >= tonumber(ARGV[4]) then
    redis.call('HINCRBY', KEYS[1], 'counter', 1)
    redis.call('HSET', KEYS[1], 'grown_ms', now_ms)
    if not found[6] then
      redis.call('HSET', KEYS[1], 'schema', ARGV[5], 'needs', ARGV[6])
    end
  end
end
return redis.call('HMGET', KEYS[1], unpack(fields))
