-- Set or remove one field of an existing channel. KEYS channel   ARGV field, value ('' removes). Returns 1 if it exists.
if redis.call('HEXISTS', KEYS[1], 'url') == 0 then
  return 0
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
