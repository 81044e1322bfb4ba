-- Turn a subscription into one to the channel's successor, with intents for both channel indexes. A user who is
-- subscribed to the successor keeps that subscription. Queued items stay queued, and the old channel is recorded so
-- that an unsubscribe finds them; versions that a pause has withheld are dropped.
-- KEYS: user, user index, intents, preferences
-- ARGV: channel id, id of the successor, version to join at
-- include user_index
local held = held_of(KEYS[2], ARGV[1])
if not held then
  return
end
local seq = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('HDEL', KEYS[2], place(ARGV[1]))
redis.call('HSET', KEYS[3], ARGV[1], 'del ' .. seq)
local number, _, _, since, paused = fields_of(held)
if held_of(KEYS[2], ARGV[2]) then
  redis.call('HDEL', KEYS[4], number)
else
  if paused ~= '' then
    paused = ' ' .. ARGV[3] .. (string.match(paused, '%*$') or '')
  end
  redis.call('HSET', KEYS[2], place(ARGV[2]), number .. ' ' .. seq .. ' ' .. ARGV[3] .. ' ' .. since .. paused)
  redis.call('HSET', KEYS[3], ARGV[2], 'move ' .. seq)
end
local was = redis.call('HGET', KEYS[1], 'was:' .. ARGV[1]) or ''
redis.call('HDEL', KEYS[1], 'was:' .. ARGV[1])
was = ARGV[1] .. ' ' .. was .. (redis.call('HGET', KEYS[1], 'was:' .. ARGV[2]) or '')
redis.call('HSET', KEYS[1], 'was:' .. ARGV[2], was)
