-- Move a deed from those that were begun to the log, once.
-- KEYS begun, log   ARGV note, deed, how many are kept.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'd', ARGV[2])
end
return 1
