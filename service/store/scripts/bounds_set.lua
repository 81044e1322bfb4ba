-- Set the poll bounds of a channel; the earlier ones are kept with them. Setting the same bounds again changes
-- nothing.
-- KEYS: bounds, edition
-- ARGV: channel id, bounds (JSON), name of the admin, maximum number of channels with bounds
-- Reply: 1, or 0 at the maximum
local raw = redis.call('HGET', KEYS[1], ARGV[1])
local before = '{}'
if raw then
  before = cjson.decode(raw).bounds
elseif redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then
  return 0
end
if before == ARGV[2] then
  return 1
end
local set = {bounds = ARGV[2], before = before, by = ARGV[3], at_s = tonumber(redis.call('TIME')[1])}
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(set))
redis.call('INCR', KEYS[2])
return 1
