-- Forget a channel's bounds, and what held before. KEYS bounds, edition   ARGV channel.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('INCR', KEYS[2])
end
return 1
