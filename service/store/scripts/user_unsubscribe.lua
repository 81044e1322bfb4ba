-- Delete a subscription from the user index, with the intent to delete it from the channel index, and purge what is
-- queued of that channel or of one that has moved into it: nothing of it may arrive after the reply (I3).
-- KEYS: user, user index, intents, outbox, in flight, preferences, last sent times, queue of the webhook
-- ARGV: channel id
-- Reply: seq of the change, or 0 without such a subscription
-- include user_index
local held = held_of(KEYS[2], ARGV[1])
if not held then
  return 0
end
local number = fields_of(held)
redis.call('HDEL', KEYS[6], number)
redis.call('HDEL', KEYS[7], ARGV[1])
redis.call('HDEL', KEYS[2], place(ARGV[1]))
local seq = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('HSET', KEYS[3], ARGV[1], 'del ' .. seq)
local purged = {[ARGV[1]] = true}
for former in string.gmatch(redis.call('HGET', KEYS[1], 'was:' .. ARGV[1]) or '', '%S+') do
  purged[former] = true
end
redis.call('HDEL', KEYS[1], 'was:' .. ARGV[1])
for _, queue in ipairs({KEYS[4], KEYS[8]}) do
  for _, item in ipairs(redis.call('XRANGE', queue, '-', '+')) do
    for i = 1, #item[2], 2 do
      if item[2][i] == 'c' and purged[item[2][i + 1]] then
        redis.call('XDEL', queue, item[1])
      end
    end
  end
end
local flying = redis.call('HGETALL', KEYS[5])
for i = 1, #flying, 2 do
  local batch = cjson.decode(flying[i + 1])
  local kept = {}
  for _, item in ipairs(batch['items']) do
    if not purged[item[1]] then
      kept[#kept + 1] = item
    end
  end
  if #kept == 0 then
    redis.call('HDEL', KEYS[5], flying[i])
  elseif #kept < #batch['items'] then
    batch['items'] = kept
    redis.call('HSET', KEYS[5], flying[i], cjson.encode(batch))
  end
end
return seq
