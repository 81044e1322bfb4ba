-- Add a revision of the fleet policy, unless another was added since the one that the caller has seen.
-- KEYS: policy, history, number of the last revision
-- ARGV: number that was seen or '', policy (JSON) or '' for that of the settings, name of the admin, maximum number
--   of revisions
-- Reply: the number of the revision, or 0 if it was not added
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
