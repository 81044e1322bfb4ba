-- Give an account the password that its invited holder chose, once.
-- KEYS accounts, invitation   ARGV name, the account as it was read, the account as it will be. Returns 1 if done.
if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('DEL', KEYS[2])
return 1
