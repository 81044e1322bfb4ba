-- Append to a list, unless it would be longer than it may be. KEYS list   ARGV most, items…
-- Returns 1 if they are appended.
if redis.call('LLEN', KEYS[1]) + #ARGV - 1 > tonumber(ARGV[1]) then
  return 0
end
for place = 2, #ARGV do
  redis.call('RPUSH', KEYS[1], ARGV[place])
end
return 1
