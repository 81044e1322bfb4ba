-- Note that nobody polls a channel any more, unless somebody has subscribed. KEYS channel, channel index. Returns 1 if it dozes.
if redis.call('HEXISTS', KEYS[1], 'url') == 0 or redis.call('HLEN', KEYS[2]) > 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'dormant', '1')
return 1
