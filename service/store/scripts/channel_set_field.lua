-- Set or delete a field of a channel; optionally only if the field has not changed since it was read.
-- KEYS: channel
-- ARGV: field, value ('' deletes the field), optionally the value that was read ('' if there was none)
-- Reply: 1, or 0 if the field has another value or the channel does not exist
local found = redis.call('HMGET', KEYS[1], 'url', ARGV[1])
if not found[1] or ARGV[3] and ARGV[3] ~= (found[2] or '') then
  return 0
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
