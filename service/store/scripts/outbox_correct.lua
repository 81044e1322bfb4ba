-- Make a batch of edits the correction of an earlier message, whose items then come first. Nothing changes if that
-- message is unknown, would have too many items, or has items of a channel that the user has left.
-- KEYS: in flight, sent messages, user index
-- ARGV: id of the batch, id of the earlier message, maximum number of items
-- Reply: the batch as JSON, or nil if it is not in flight
-- include user_index
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then
  return nil
end
local batch = cjson.decode(held)
for _, packed in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local message = cjson.decode(packed)
  if message['m'] == ARGV[2] and not batch['replaces'] and #message['items'] + #batch['items'] <= tonumber(ARGV[3]) then
    local items = message['items']
    for _, item in ipairs(items) do
      if not held_of(KEYS[3], item[1]) then
        return held
      end
    end
    for _, item in ipairs(batch['items']) do
      items[#items + 1] = item
    end
    batch['items'], batch['replaces'] = items, message['m']
    held = cjson.encode(batch)
    redis.call('HSET', KEYS[1], ARGV[1], held)
  end
end
return held
