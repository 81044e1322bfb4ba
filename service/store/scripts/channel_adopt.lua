-- Become the channel's owner: raise its epoch and hand back its state. KEYS channel   ARGV node id
-- Returns the hash (field, value, …), or nothing if there is no such channel.
if redis.call('HEXISTS', KEYS[1], 'url') == 0 then
  return {}
end
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
return redis.call('HGETALL', KEYS[1])
