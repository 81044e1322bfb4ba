-- Write or remove one console account if all accounts are as the caller read them.
-- KEYS accounts   ARGV name, account ("" removes it), then name and account of each that is expected. Returns 1 if written.
if redis.call('HLEN', KEYS[1]) ~= (#ARGV - 2) / 2 then
  return 0
end
for i = 3, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
