-- Write or remove an account if all accounts are as the caller read them. Its password link is deleted on request;
-- setup tokens are deleted when an account is written.
-- KEYS: accounts, links, setup tokens
-- ARGV: name, account ('' removes it), '1' to delete its link, then name and account of each as read
-- Reply: 1 if it was written, else 0
if redis.call('HLEN', KEYS[1]) ~= (#ARGV - 3) / 2 then
  return 0
end
for i = 4, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('DEL', KEYS[3])
end
if ARGV[3] == '1' then
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return 1
