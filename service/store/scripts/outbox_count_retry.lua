-- Count another attempt to send a batch.
-- KEYS: in flight
-- ARGV: message id
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held then
  local batch = cjson.decode(held)
  batch['tries'] = (batch['tries'] or 1) + 1
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(batch))
end
