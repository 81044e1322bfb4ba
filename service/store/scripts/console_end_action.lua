-- Move an action from those in progress to the log, once.
-- KEYS: actions in progress, log
-- ARGV: note, action, maximum number of actions
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'd', ARGV[2])
end
return 1
