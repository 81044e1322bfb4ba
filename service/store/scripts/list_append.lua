-- Append items to a list, unless it would exceed a maximum length.
-- KEYS: list
-- ARGV: maximum length, items
-- Reply: 1 if they were appended, else 0
if redis.call('LLEN', KEYS[1]) + #ARGV - 1 > tonumber(ARGV[1]) then
  return 0
end
for place = 2, #ARGV do
  redis.call('RPUSH', KEYS[1], ARGV[place])
end
return 1
