-- Store a new announcement and start it, once. Old announcements are removed.
-- KEYS: announcements, running announcements
-- ARGV: number, announcement (JSON), greatest number to remove
-- Reply: 1, or 0 if the number has been used
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
redis.call('SADD', KEYS[2], ARGV[1])
for _, number in ipairs(redis.call('HKEYS', KEYS[1])) do
  if tonumber(number) <= tonumber(ARGV[3]) and redis.call('SISMEMBER', KEYS[2], number) == 0 then
    redis.call('HDEL', KEYS[1], number)
  end
end
return 1
