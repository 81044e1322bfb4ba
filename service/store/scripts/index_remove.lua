-- Take a user out of a channel's index, unless a later change of mind put them there. KEYS channel index   ARGV user id, seq
local seq = redis.call('HGET', KEYS[1], ARGV[1])
if seq and tonumber(seq) <= tonumber(ARGV[2]) then
  return redis.call('HDEL', KEYS[1], ARGV[1])
end
return 0
