-- Set or delete a field of a channel, if the field has not changed since it was read.
-- KEYS: channel
-- ARGV: field, value that was read ('' if there was none), new value ('' deletes the field)
-- Reply: 1, or 0 if the field has another value or the channel does not exist
local found = redis.call('HMGET', KEYS[1], 'url', ARGV[1])
if not found[1] or (found[2] or '') ~= ARGV[2] then
  return 0
end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
