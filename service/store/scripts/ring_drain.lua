-- Keep a worker out of the ring, or, if it is kept out, record that it is running. Workers that did not report for a
-- day are dropped.
-- KEYS: drained workers
-- ARGV: name of the worker, '1' to keep it out
-- Reply: 1 if it is kept out, else 0
-- include clock
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - 86400000)
if ARGV[2] == '1' or redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  redis.call('ZADD', KEYS[1], now_ms, ARGV[1])
  return 1
end
return 0
