-- Become the channel's owner: raise its epoch and hand back its state. KEYS channel   ARGV node id, field, …
-- Returns the fields' values; none of a channel that does not exist.
if redis.call('HEXISTS', KEYS[1], 'url') == 1 then
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('HSET', KEYS[1], 'owner', ARGV[1])
end
return redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
