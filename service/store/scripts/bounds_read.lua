-- read-only
-- Read the poll bounds of all channels if they have changed.
-- KEYS: bounds, edition
-- ARGV: edition that the caller has
-- Reply: {edition} if it is the caller's, else {edition, {channel id, value, …}}
local edition = redis.call('GET', KEYS[2]) or '0'
if edition == ARGV[1] then
  return {edition}
end
return {edition, redis.call('HGETALL', KEYS[1])}
