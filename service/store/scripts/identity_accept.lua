-- The operator accepts the store as it is.
-- KEYS identity   ARGV the fleet's id or '' for the one there, a new id if there is none either, the counter that was
-- seen, when it was seen (ms). Returns fleet, counter, grown_ms, accepted_ms, refused.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'fleet', 'counter')
local fleet = ARGV[1]
if fleet == '' then
  fleet = found[1] or ARGV[2]
end
local counter = math.max(tonumber(found[2] or 0), tonumber(ARGV[3])) + 1
-- Other programs may have seen the store a little later than this one has.
local accepted = math.max(now, tonumber(ARGV[4]) + 10000)
redis.call('HSET', KEYS[1], 'fleet', fleet, 'counter', counter, 'grown_ms', now, 'accepted_ms', accepted)
redis.call('HDEL', KEYS[1], 'refused')
return redis.call('HMGET', KEYS[1], 'fleet', 'counter', 'grown_ms', 'accepted_ms', 'refused')
