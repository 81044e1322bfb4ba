-- Move the oldest items of an outbox into a batch in flight; the first item's id names the message for ever.
-- KEYS outbox, in flight   ARGV user id, most items, now s. 
-- Returns {message id, batch as JSON}, or the number of batches in flight when nothing is queued.
local found = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[2])
if #found == 0 then
  return redis.call('HLEN', KEYS[2])
end
local items = {}
for _, item in ipairs(found) do
  local field = {}
  for i = 1, #item[2], 2 do
    field[item[2][i]] = item[2][i + 1]
  end
  items[#items + 1] = {field['c'], tonumber(field['v']), tonumber(field['t'])}
  redis.call('XDEL', KEYS[1], item[1])
end
local message_id = ARGV[1] .. '-' .. found[1][1]
local batch = cjson.encode({items = items, acked = false, at = tonumber(ARGV[3])})
redis.call('HSET', KEYS[2], message_id, batch)
return {message_id, batch}
