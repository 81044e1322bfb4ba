-- Make a node the owner of a channel: raise its epoch and return its state.
-- KEYS: channel
-- ARGV: node id, names of fields
-- Reply: the values of the fields; all nil if the channel does not exist
if redis.call('HEXISTS', KEYS[1], 'url') == 1 then
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('HSET', KEYS[1], 'owner', ARGV[1])
end
return redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
