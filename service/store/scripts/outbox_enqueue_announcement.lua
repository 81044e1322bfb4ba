-- Queue an announcement for a known user, once.
-- KEYS: user, outbox, numbers of the announcements that were queued for the user
-- ARGV: channel id that stands for announcements, number of the announcement, now (Unix s)
-- Reply: 1 queued, 0 queued before or unknown user
if redis.call('HEXISTS', KEYS[1], 'jid') == 0 or redis.call('SADD', KEYS[3], ARGV[2]) == 0 then
  return 0
end
redis.call('EXPIRE', KEYS[3], 90 * 86400)
redis.call('XADD', KEYS[2], '*', 'c', ARGV[1], 'v', ARGV[2], 't', ARGV[3], 'e', 'a', 'm', '[]')
return 1
