-- Keep how a poll ended, and since when the channel fails. KEYS channel, polls
-- ARGV result, when it failed (Unix s; '' when it did not), how many results to keep. Returns 1 if the channel exists.
if redis.call('HEXISTS', KEYS[1], 'url') == 0 then
  return 0
end
redis.call('LPUSH', KEYS[2], ARGV[1])
redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[3]) - 1)
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'failing_since')
else
  redis.call('HSETNX', KEYS[1], 'failing_since', ARGV[2])
end
return 1
