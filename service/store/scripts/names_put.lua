-- Store content names by their keys.
-- KEYS: 1 hash of a bucket of names: key (8 bytes) → expiry (Unix time in s, 4 bytes), name
-- ARGV: key and value of each name
-- Reply: nil
-- A name that expires later stays. Expired names are deleted now and then.
local now_s, latest_s = tonumber(redis.call('TIME')[1]), 0
for i = 1, #ARGV, 2 do
  local until_s = struct.unpack('>I4', ARGV[i + 1])
  local before = redis.call('HGET', KEYS[1], ARGV[i])
  if not before or struct.unpack('>I4', before) < until_s then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  latest_s = math.max(latest_s, until_s)
end
if math.random(16) == 1 then
  local held = redis.call('HGETALL', KEYS[1])
  for i = 1, #held, 2 do
    if struct.unpack('>I4', held[i + 1]) <= now_s then
      redis.call('HDEL', KEYS[1], held[i])
    end
  end
end
if redis.call('TTL', KEYS[1]) < latest_s - now_s then
  redis.call('EXPIREAT', KEYS[1], latest_s + 3600)
end
