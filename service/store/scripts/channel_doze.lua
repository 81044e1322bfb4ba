-- Note that nobody polls a channel any more, unless somebody has subscribed, or is about to. What was told of it was
-- told to people who have left, and evidence is of polls in a row.
-- KEYS channel, channel index, joining. Returns 1 if it dozes.
if redis.call('HEXISTS', KEYS[1], 'url') == 0 or redis.call('HLEN', KEYS[2]) + redis.call('HLEN', KEYS[3]) > 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'dormant', '1')
redis.call('HDEL', KEYS[1], 'condition', 'evidence', 'refusals', 'failing_since')
return 1
