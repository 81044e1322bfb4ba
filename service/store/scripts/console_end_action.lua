-- Move an action from those in progress to the log, once, and remove old actions.
-- KEYS: actions in progress, log
-- ARGV: note, action, maximum number of actions, how long they are kept (s)
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'd', ARGV[2])
  local oldest = redis.call('TIME')[1] - ARGV[4]
  redis.call('XTRIM', KEYS[2], 'MINID', string.format('%.0f', oldest * 1000))
end
