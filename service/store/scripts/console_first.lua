-- Create the first console account with a one-time setup token, unless there is an account.
-- KEYS accounts, setup   ARGV token's hash, name, account. Returns 1 if created.
if redis.call('HLEN', KEYS[1]) > 0 or redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('DEL', KEYS[2])
return 1
