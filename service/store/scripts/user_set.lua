-- Set a field of somebody we know, or remove it.   KEYS user   ARGV field, value ('' removes it). Returns 1 if we know them.
if redis.call('HEXISTS', KEYS[1], 'jid') == 0 then
  return 0
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
