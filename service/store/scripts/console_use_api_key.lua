-- Read an API key and record its use, if the last record is old enough.
-- KEYS: keys, last uses
-- ARGV: hash of the token, now (Unix s), minimum age of the last record in s
-- Reply: the key or nil
local key = redis.call('HGET', KEYS[1], ARGV[1])
if key and ARGV[2] - (redis.call('HGET', KEYS[2], ARGV[1]) or 0) >= tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
return key
