-- The channel index agrees: drop the intent. KEYS intents   ARGV channel id, intent. Returns how many are left.
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return redis.call('HLEN', KEYS[1])
