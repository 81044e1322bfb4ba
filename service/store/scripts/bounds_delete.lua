-- Delete the poll bounds of a channel, and its earlier bounds.
-- KEYS: bounds, edition
-- ARGV: channel id
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('INCR', KEYS[2])
end
return 1
