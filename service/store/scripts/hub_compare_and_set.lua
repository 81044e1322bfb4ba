-- Replace the hub subscription of a channel if it has not changed.
-- KEYS: hub subscription
-- ARGV: state before ('' for none), state after ('' deletes it)
-- Reply: 1 if it was replaced, else 0
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2])
end
return 1
