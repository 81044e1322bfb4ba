-- Make a user a guest and use up an invitation code.
-- KEYS: invitation codes, guests
-- ARGV: hash of the code, user id, now (Unix s)
-- Reply: 1 if the user is a guest now, else 0
if redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 1 then
  return 1
end
local uses, until_s = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) (%d+)$')
if not uses then
  return 0
end
local is_good = tonumber(until_s) >= tonumber(ARGV[3])
if is_good and tonumber(uses) > 1 then
  redis.call('HSET', KEYS[1], ARGV[1], (uses - 1) .. ' ' .. until_s)
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return is_good and redis.call('SADD', KEYS[2], ARGV[2]) or 0
