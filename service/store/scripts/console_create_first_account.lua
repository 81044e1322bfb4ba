-- Create the first account with a setup token, unless there is an account.
-- KEYS: accounts, setup tokens
-- ARGV: hash of the token, name, account
-- Reply: 1 if it was created, else 0
if redis.call('HLEN', KEYS[1]) > 0 or redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('DEL', KEYS[2])
return 1
