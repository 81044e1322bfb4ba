-- A batch has come further: the server has it and its receipt is awaited ('acked'), it has arrived ('done'), or it
-- never will ('lost'). What the server has taken is remembered, once, as the user's newest message; a correction takes
-- the place of what it corrects.
-- KEYS outbox, in flight, told   ARGV message id, how far. Returns 1 if nothing is left for this user.
local held = redis.call('HGET', KEYS[2], ARGV[1])
local batch = held and cjson.decode(held)
if batch and not batch['acked'] and ARGV[2] ~= 'lost' then
  local message_id = batch['replaces'] or ARGV[1]
  if batch['replaces'] then
    for _, message in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
      if cjson.decode(message)['m'] == message_id then
        redis.call('LREM', KEYS[3], 1, message)
      end
    end
  end
  redis.call('LPUSH', KEYS[3], cjson.encode({m = message_id, items = batch['items']}))
  redis.call('LTRIM', KEYS[3], 0, 19)
  redis.call('EXPIRE', KEYS[3], 30 * 86400)
end
if batch and ARGV[2] == 'acked' then
  batch['acked'] = true
  redis.call('HSET', KEYS[2], ARGV[1], cjson.encode(batch))
else
  redis.call('HDEL', KEYS[2], ARGV[1])
end
if redis.call('HLEN', KEYS[2]) == 0 and redis.call('XLEN', KEYS[1]) == 0 then
  return 1
end
return 0
