-- Store a message of a user once; above the maximum of unanswered ones the oldest are dropped. The first address that
-- a user writes to becomes their home address, for an hour unless they are admitted.
-- KEYS: messages, tokens, home
-- ARGV: 1 token ('' for none), 2 message, 3 address of the bot, 4 maximum number of unanswered messages, 5 since when
--   (Unix s) the token identifies the same message, 6 how long it is remembered in s
-- Reply: 1 if the message is new, else 0
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
