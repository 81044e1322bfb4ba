-- Note that nobody polls a channel any more, unless somebody has joined since nobody was counted, or is about to come.
-- What was told of it was told to people who have left, and evidence is of polls in a row.
-- KEYS channel, joining   ARGV joins at the count ('' for none). Returns 1 if it dozes.
local found = redis.call('HMGET', KEYS[1], 'url', 'joins')
if not found[1] or (found[2] or '') ~= ARGV[1] or redis.call('HLEN', KEYS[2]) > 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'dormant', '1')
redis.call('HDEL', KEYS[1], 'condition', 'evidence', 'refusals', 'failing_since')
return 1
