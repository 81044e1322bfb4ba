-- Write a subscription to the user index, with the intent to add it to the channel index. Restrictions of a user who
-- returns after erasure no longer expire.
-- KEYS: user, user index, intents, restrictions
-- ARGV: 1 JID, 2 channel id, 3 version seen, 4 now (encoded), 5 seq above which that of a new user begins, 6 maximum
--   of subscriptions unless an admin has set another ('' for none)
-- Reply: {1 if it is new, else 0}, or {-1, maximum} at the maximum
-- include user_index
if ARGV[6] ~= '' and not held_of(KEYS[2], ARGV[2]) then
  local most = tonumber(redis.call('HGET', KEYS[4], 'most_subscriptions') or ARGV[6])
  if redis.call('HLEN', KEYS[2]) >= most then
    return {-1, most}
  end
end
redis.call('HSETNX', KEYS[1], 'jid', ARGV[1])
redis.call('PERSIST', KEYS[4])
if held_of(KEYS[2], ARGV[2]) then
  return {0}
end
if tonumber(ARGV[5]) > 0 then
  redis.call('HSETNX', KEYS[1], 'seq', ARGV[5])
end
local number = redis.call('HINCRBY', KEYS[1], 'numbers', 1)
local seq = redis.call('HINCRBY', KEYS[1], 'seq', 1)
local record = number .. ' ' .. seq .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
redis.call('HSET', KEYS[2], place(ARGV[2]), record)
redis.call('HSET', KEYS[3], ARGV[2], 'add ' .. seq)
return {1}
