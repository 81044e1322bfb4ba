-- Read and reset the deliveries of a keyspace's key groups.
-- KEYS: deliveries
-- Reply: {label, deliveries, …}
local told = redis.call('HGETALL', KEYS[1])
redis.call('DEL', KEYS[1])
return told
