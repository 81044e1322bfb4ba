-- Delete a channel without subscribers, unless a user has joined since the count of its subscribers, or users are
-- moving here. The site, by which subscriptions are found, is kept: see channel_delete.lua.
-- KEYS: channel, poll results, incoming moves, units of its fan-out
-- ARGV: value of field joins at the count ('' for none)
-- Reply: 1, or 0 if the channel is kept or does not exist
local found = redis.call('HMGET', KEYS[1], 'url', 'joins', 'site')
if not found[1] or (found[2] or '') ~= ARGV[1] or redis.call('HLEN', KEYS[3]) > 0 then
  return 0
end
redis.call('DEL', unpack(KEYS))
if found[3] then
  redis.call('HSET', KEYS[1], 'site', found[3])
end
return 1
