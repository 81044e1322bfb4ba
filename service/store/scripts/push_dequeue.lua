-- Delete the queue of a channel's pushed documents.
-- KEYS: queue, sizes, expiry times
-- ARGV: channel id, bytes above which a queue counts as large, '1' to return the documents
-- Reply: the documents, oldest first
local documents = ARGV[3] == '1' and redis.call('LRANGE', KEYS[1], 0, -1) or {}
redis.call('UNLINK', KEYS[1])
local size = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0)
if size > 0 then
  redis.call('HINCRBY', KEYS[2], 'all', -size)
  if size > tonumber(ARGV[2]) then
    redis.call('HINCRBY', KEYS[2], 'large', -size)
  end
  redis.call('HDEL', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
end
return documents
