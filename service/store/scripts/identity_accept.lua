-- Accept the store as it is, at the operator's request.
-- KEYS: identity
-- ARGV: fleet id ('' for the present one), new id if there is none either, last counter seen, when it was seen (ms)
-- Reply: {fleet, counter, grown_ms, accepted_ms, refused, schema, needs}
-- include clock
local found = redis.call('HMGET', KEYS[1], 'fleet', 'counter')
local fleet = ARGV[1]
if fleet == '' then
  fleet = found[1] or ARGV[2]
end
local counter = math.max(tonumber(found[2] or 0), tonumber(ARGV[3])) + 1
-- Other processes may have read the identity a little later than this one.
local accepted = math.max(now_ms, tonumber(ARGV[4]) + 10000)
redis.call('HSET', KEYS[1], 'fleet', fleet, 'counter', counter, 'grown_ms', now_ms, 'accepted_ms', accepted)
redis.call('HDEL', KEYS[1], 'refused')
return redis.call('HMGET', KEYS[1], 'fleet', 'counter', 'grown_ms', 'accepted_ms', 'refused', 'schema', 'needs')
