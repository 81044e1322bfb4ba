-- Set or delete a field of a channel.
-- KEYS: channel
-- ARGV: field, value ('' deletes the field)
-- Reply: 1, or 0 if the channel does not exist
if redis.call('HEXISTS', KEYS[1], 'url') == 0 then
  return 0
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
