-- Keep a pushed document until the channel's owner takes it; too many become one empty one, which asks for a poll.
-- KEYS pushed   ARGV document, the empty one, how many to keep, how long (s). Returns how many are kept.
if redis.call('LINDEX', KEYS[1], -1) ~= ARGV[1] then
  if redis.call('RPUSH', KEYS[1], ARGV[1]) > tonumber(ARGV[3]) then
    redis.call('DEL', KEYS[1])
    redis.call('RPUSH', KEYS[1], ARGV[2])
  end
end
redis.call('EXPIRE', KEYS[1], ARGV[4])
return redis.call('LLEN', KEYS[1])
