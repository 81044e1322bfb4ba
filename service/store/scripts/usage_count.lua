-- Count a use in a fixed window that begins with the first use.
-- KEYS: counter
-- ARGV: limit, window in ms
-- Reply: 1 if the use is within the limit, else 0
local used = redis.call('INCR', KEYS[1])
if used == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return used <= tonumber(ARGV[1]) and 1 or 0
