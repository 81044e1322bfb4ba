-- Record the progress of a unit of a fan-out, fenced by the token of its claim, and extend the claim.
-- KEYS: units
-- ARGV: label, token, cursor ('' if the unit is finished), users of the page, length of a claim (ms)
-- Reply: 1, or 0 if the claim is not the present one
-- include clock
local _, token = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%S+) (%S+)')
if token ~= ARGV[2] then
  return 0
end
redis.call('HINCRBY', KEYS[1], 'queued', ARGV[4])
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s %s', now_ms + ARGV[5], token, ARGV[3]))
end
return 1
