-- Store the content name of a channel, unless that of a later version is stored.
-- KEYS: channel
-- ARGV: version of the channel, content name, which begins with this version and a space
local found = redis.call('HMGET', KEYS[1], 'url', 'name')
if not found[1] or tonumber(string.match(found[2] or '', '^(%d+) ') or '0') > tonumber(ARGV[1]) then
  return
end
redis.call('HSET', KEYS[1], 'name', ARGV[2])
