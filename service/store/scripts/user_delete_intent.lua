-- Delete an intent that the channel index has, unless there is a newer one.
-- KEYS: intents
-- ARGV: channel id, intent
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
