-- Record the progress of a fan-out, fenced by the owner's epoch.
-- KEYS: channel
-- ARGV: epoch, version, cursor ('' if the version is complete)
-- Reply: 1, or 0 if the epoch is another owner's
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
if ARGV[3] == '' then
  redis.call('HSET', KEYS[1], 'fanned', ARGV[2])
  redis.call('HDEL', KEYS[1], 'cursor')
else
  redis.call('HSET', KEYS[1], 'cursor', ARGV[3])
end
return 1
