-- Give a lease back, if it is ours; the epoch stays. KEYS lease   ARGV holder
if redis.call('HGET', KEYS[1], 'holder') == ARGV[1] then
  return redis.call('HDEL', KEYS[1], 'holder', 'until_ms')
end
return 0
