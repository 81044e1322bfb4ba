-- Forget a finished batch. KEYS outbox, in flight   ARGV message id. Returns 1 if nothing is left for this user.
redis.call('HDEL', KEYS[2], ARGV[1])
if redis.call('HLEN', KEYS[2]) == 0 and redis.call('XLEN', KEYS[1]) == 0 then
  return 1
end
return 0
