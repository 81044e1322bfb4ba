-- Delete a channel; where its subscriptions are placed stays for who ends the last of them, and goes with the second
-- call. KEYS channel, log, polls, joining   ARGV '1' if the last are ended
local found = redis.call('HMGET', KEYS[1], 'url', 'site')
if ARGV[1] == '1' then
  if not found[1] then
    redis.call('DEL', KEYS[1])
  end
  return
end
redis.call('DEL', unpack(KEYS))
if found[2] then
  redis.call('HSET', KEYS[1], 'site', found[2])
end
