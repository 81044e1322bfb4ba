-- Store the only password link of an account.
-- KEYS: accounts, links
-- ARGV: name, account as read, link, validity in s
-- Reply: 1, or 0 if the account has changed
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('EXPIRE', KEYS[2], ARGV[4])
return 1
