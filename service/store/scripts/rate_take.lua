-- Count one use in a fixed window that starts with the first use. KEYS counter   ARGV limit, window ms. Returns 1 if allowed.
local used = redis.call('INCR', KEYS[1])
if used == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return used <= tonumber(ARGV[1]) and 1 or 0
