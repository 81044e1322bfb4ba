-- Set or delete a restriction of a known user. Restrictions of an erased user keep their expiry.
-- KEYS: user, restrictions
-- ARGV: field, value ('' deletes it)
-- Reply: 1, or 0 for an unknown user
local jid = redis.call('HGET', KEYS[1], 'jid') or redis.call('HGET', KEYS[2], 'jid')
if not jid then
  return 0
end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[2], 'jid', jid, ARGV[1], ARGV[2])
else
  redis.call('HDEL', KEYS[2], ARGV[1])
  if redis.call('HLEN', KEYS[2]) <= 1 then
    redis.call('DEL', KEYS[2])
  end
end
return 1
