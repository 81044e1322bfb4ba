-- Set the password of an account and delete its password link.
-- KEYS: accounts, links
-- ARGV: name, account as read, account with the password, link
-- Reply: 1, or 0 if the account or the link has changed
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] or redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[4] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
