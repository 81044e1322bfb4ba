-- Pause the polls of a channel at its publisher's request, unless an admin's pause is active.
-- KEYS: pause, channel
-- ARGV: duration in ms
if redis.call('GET', KEYS[1]) == 'admin' then
  return
end
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
if redis.call('HEXISTS', KEYS[2], 'url') == 1 then
  local ends = redis.call('TIME')[1] + math.ceil(ARGV[1] / 1000)
  redis.call('HSET', KEYS[2], 'no_poll_before', string.format('%d', ends))
end
