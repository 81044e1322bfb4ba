-- Pause the polls of a channel at an admin's request, or end the pause.
-- KEYS: channel, pause
-- ARGV: duration in ms (0 ends the pause)
if redis.call('HEXISTS', KEYS[1], 'url') == 0 then
  return
end
local now = redis.call('TIME')
local for_ms = tonumber(ARGV[1])
if for_ms > 0 then
  redis.call('HSET', KEYS[1], 'paused', string.format('%d', now[1] + math.ceil(for_ms / 1000)))
  redis.call('SET', KEYS[2], 'admin', 'PX', ARGV[1])
else
  redis.call('HDEL', KEYS[1], 'paused')
  redis.call('HSET', KEYS[1], 'no_poll_before', now[1])
  redis.call('DEL', KEYS[2])
end
