-- Raise a number to at least a value, and keep it so long. KEYS string   ARGV value, s
local held = tonumber(redis.call('GET', KEYS[1]) or 0)
redis.call('SET', KEYS[1], math.max(held, tonumber(ARGV[1])), 'EX', ARGV[2])
return 1
