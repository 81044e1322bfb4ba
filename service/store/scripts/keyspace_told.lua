-- Take what fan-outs have noted of a keyspace's groups. KEYS told   Returns group, deliveries, …
local told = redis.call('HGETALL', KEYS[1])
redis.call('DEL', KEYS[1])
return told
