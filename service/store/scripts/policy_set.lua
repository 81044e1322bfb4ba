-- Make a revision of the fleet's aims, unless another was made since the one that its maker saw.
-- KEYS aims, history, revision   ARGV number that was seen or '', aims or '' for those of the settings, who, how many
-- to keep. Returns the revision's number, 0 if it was not made.
local last = tonumber(redis.call('GET', KEYS[3]) or '0')
if ARGV[1] ~= '' and tonumber(ARGV[1]) ~= last then
  return 0
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2])
end
local aims = cjson.null
if ARGV[2] ~= '' then
  aims = ARGV[2]
end
local made = {number = redis.call('INCR', KEYS[3]), at_s = tonumber(redis.call('TIME')[1]), by = ARGV[3], aims = aims}
redis.call('LPUSH', KEYS[2], cjson.encode(made))
redis.call('LTRIM', KEYS[2], 0, ARGV[4] - 1)
return made.number
