-- Store a message of a user, once, in order; of more than ARGV[4] unanswered ones the oldest are dropped.
-- The address that a user writes to first is their home: for an hour, until they are let in.
-- KEYS heard, known, home   ARGV token ('' for none), the message, its address, most, since when (Unix s) a token names
-- the same message, for how many s it is known
-- Returns 1 if it is new.
redis.call('SET', KEYS[3], ARGV[3], 'NX', 'EX', 3600)
if ARGV[1] ~= '' then
  local now = redis.call('TIME')
  local heard_s = redis.call('ZSCORE', KEYS[2], ARGV[1])
  if heard_s and tonumber(heard_s) >= tonumber(ARGV[5]) then
    return 0
  end
  redis.call('ZADD', KEYS[2], now[1], ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now[1] - ARGV[6])
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1001)
  redis.call('EXPIRE', KEYS[2], ARGV[6])
end
redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[4], '*', 's', ARGV[2], 'v', ARGV[3])
return 1
