-- Put a standing query into its bucket, or take it out, and say so in the log. KEYS bucket, log
-- ARGV id, Standing (msgpack), '' to take it out
if ARGV[2] == '' then
  if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
    return 0
  end
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 10000, '*', 'i', ARGV[1], 's', ARGV[2])
return 1
