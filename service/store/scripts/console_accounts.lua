-- Write or remove one console account if all accounts are as the caller read them. Its link ends with it, or with its
-- password; the links that make the first account end with any account.
-- KEYS accounts, links, setup   ARGV name, account ("" removes it), 1 if its link ends, then name and account of each
-- that is expected. Returns 1 if written.
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
