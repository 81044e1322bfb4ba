-- Take in what a user said, once, in order; of more than ARGV[5] that nobody has answered the oldest are dropped.
-- Where they wrote first is their home: for an hour, until they are let in.
-- KEYS heard, known, home, user   ARGV token ('' for none), what was said, where, home of whom we know already, most,
-- since when (Unix s) a token names the same, for how many s it is known
-- Returns 1 if it is new.
if redis.call('EXISTS', KEYS[3]) == 0 then
  local home = redis.call('HEXISTS', KEYS[4], 'welcomed') == 1 and ARGV[4] or ARGV[3]
  redis.call('SET', KEYS[3], home, 'EX', 3600)
end
if ARGV[1] ~= '' then
  local now = redis.call('TIME')
  local heard_s = redis.call('ZSCORE', KEYS[2], ARGV[1])
  if heard_s and tonumber(heard_s) >= tonumber(ARGV[6]) then
    return 0
  end
  redis.call('ZADD', KEYS[2], now[1], ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now[1] - ARGV[7])
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1001)
  redis.call('EXPIRE', KEYS[2], ARGV[7])
end
redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[5], '*', 's', ARGV[2], 'v', ARGV[3])
return 1
