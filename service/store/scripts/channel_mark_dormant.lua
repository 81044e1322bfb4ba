-- Mark a channel as dormant, unless a user has joined since the count of its subscribers, or users are moving here.
-- The condition that was announced to subscribers is deleted, because they have left, and so is the evidence of
-- consecutive polls.
-- KEYS: channel, incoming moves
-- ARGV: value of field joins at the count ('' for none)
local found = redis.call('HMGET', KEYS[1], 'url', 'joins')
if not found[1] or (found[2] or '') ~= ARGV[1] or redis.call('HLEN', KEYS[2]) > 0 then
  return
end
redis.call('HSET', KEYS[1], 'dormant', '1')
redis.call('HDEL', KEYS[1], 'condition', 'evidence', 'failing_since', 'failed', 'backoff')
