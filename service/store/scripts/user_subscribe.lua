-- Write a subscription into the user index, with the intent to put it into the channel index.
-- KEYS user, user index, intents, restrictions   ARGV jid, channel id, version seen, now, seq above which newcomers
-- begin, most subscriptions unless an admin has set another number ('' for any number)
-- What restricts somebody who was forgotten and comes back does not expire any more.
-- Returns {new, 'number seq seen since', the user's intents (channel id, intent, …)}; {-1, most} if there are as many.
-- include user_held
if ARGV[6] ~= '' and not held_of(KEYS[2], ARGV[2]) then
  local most = tonumber(redis.call('HGET', KEYS[4], 'most_subscriptions') or ARGV[6])
  if redis.call('HLEN', KEYS[2]) >= most then
    return {-1, most}
  end
end
redis.call('HSETNX', KEYS[1], 'jid', ARGV[1])
redis.call('PERSIST', KEYS[4])
local held = held_of(KEYS[2], ARGV[2])
if held then
  return {0, held, redis.call('HGETALL', KEYS[3])}
end
if tonumber(ARGV[5]) > 0 then
  redis.call('HSETNX', KEYS[1], 'seq', ARGV[5])
end
local number = redis.call('HINCRBY', KEYS[1], 'numbers', 1)
local seq = redis.call('HINCRBY', KEYS[1], 'seq', 1)
local record = number .. ' ' .. seq .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
redis.call('HSET', KEYS[2], place(ARGV[2]), record)
redis.call('HSET', KEYS[3], ARGV[2], 'add ' .. seq)
return {1, record, redis.call('HGETALL', KEYS[3])}
