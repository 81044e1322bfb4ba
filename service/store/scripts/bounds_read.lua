-- read-only
-- Read all channels' bounds, if they have changed. KEYS bounds, edition   ARGV edition that was read.
-- Returns the edition, and channel, value, …; nothing besides the edition if that is the one that was read.
local edition = redis.call('GET', KEYS[2]) or '0'
if edition == ARGV[1] then
  return {edition}
end
return {edition, redis.call('HGETALL', KEYS[1])}
