-- The server has the message; the batch now waits for its receipt. KEYS in flight   ARGV message id
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then
  return 0
end
local batch = cjson.decode(held)
batch['acked'] = true
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(batch))
return 1
