-- Remove a member of a sorted set if its score has not changed.
-- KEYS: sorted set
-- ARGV: member, score
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if score and tonumber(score) == tonumber(ARGV[2]) then
  redis.call('ZREM', KEYS[1], ARGV[1])
end
