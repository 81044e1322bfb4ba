-- Keep the only link with which the holder of an account chooses a password.
-- KEYS accounts, links   ARGV name, the account as it was read, link, how long it lasts in s. Returns 1 if kept.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('EXPIRE', KEYS[2], ARGV[4])
return 1
