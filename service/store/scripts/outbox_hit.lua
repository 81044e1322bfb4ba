-- Queue what standing queries of one user have met in a version, once; nothing if they are subscribed to the channel,
-- which tells them the whole version. KEYS user index, outbox, watches, hits
-- ARGV channel id, version, now s, marks of the entries met (JSON), positions of the others (JSON), then the numbers of the
-- standing queries. Returns 1 queued, 0 not again or not needed, -1 there are no such standing queries any more.
-- with user_held
local alive = false
for i = 6, #ARGV do
  alive = alive or redis.call('HEXISTS', KEYS[3], ARGV[i]) == 1
end
if not alive then
  return -1
end
if held_of(KEYS[1], ARGV[1]) or redis.call('SADD', KEYS[4], ARGV[1] .. ' ' .. ARGV[2]) == 0 then
  return 0
end
redis.call('EXPIRE', KEYS[4], 7 * 86400)
redis.call('XADD', KEYS[2], '*', 'c', ARGV[1], 'v', ARGV[2], 't', ARGV[3], 'e', 0, 'm', ARGV[4], 'x', ARGV[5])
return 1
