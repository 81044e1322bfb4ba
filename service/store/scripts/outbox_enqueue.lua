-- Queue one version of a channel for one user, once: the subscription remembers the last version it was given.
-- KEYS user index, outbox   ARGV channel id, version, now s. Returns 1 queued, 0 already given, -1 not subscribed.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then
  return -1
end
local number, seq, seen, since = string.match(held, '^(%S+) (%S+) (%S+) (%S+)$')
if tonumber(seen) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], number .. ' ' .. seq .. ' ' .. ARGV[2] .. ' ' .. since)
redis.call('XADD', KEYS[2], '*', 'c', ARGV[1], 'v', ARGV[2], 't', ARGV[3])
return 1
