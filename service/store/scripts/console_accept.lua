-- Give an account the password that its holder chose by a link, once.
-- KEYS accounts, links   ARGV name, the account as it was read, the account as it will be, link. Returns 1 if done.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] or redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[4] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
