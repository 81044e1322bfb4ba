-- Record the progress of a batch. 'acked': the server has it, its receipt is awaited; 'done': the server has it, no
-- receipt is awaited; 'received': its receipt has arrived; 'lost': it was given up. The message is remembered once,
-- as the user's newest, with these times; a correction replaces the message that it corrects.
-- KEYS: outbox, in flight, sent messages
-- ARGV: message id, progress, reason if lost
-- Reply: 1 if the user has no further items or batches, else 0
local held = redis.call('HGET', KEYS[2], ARGV[1])
local batch = held and cjson.decode(held)
-- include clock
local now_s = now_ms / 1000

-- Return a stored message as JSON and its index in the list. A message id occurs nowhere else in a message.
local function remembered(message_id)
  for place, message in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
    if string.find(message, '"' .. message_id .. '"', 1, true) then
      return message, place - 1
    end
  end
end

-- Return a message as JSON with its progress.
local function with_progress(message)
  message['tries'] = batch['tries']
  if ARGV[2] == 'received' then
    message['received'] = now_s
  elseif ARGV[2] == 'lost' then
    message['why'] = ARGV[3]
  end
  return cjson.encode(message)
end

if batch then
  -- A lost correction leaves the earlier message as it is.
  local message_id = (batch['acked'] or ARGV[2] ~= 'lost') and batch['replaces'] or ARGV[1]
  local written, place
  if batch['acked'] or batch['replaces'] then
    written, place = remembered(message_id)
  end
  if batch['acked'] then
    if written then
      redis.call('LSET', KEYS[3], place, with_progress(cjson.decode(written)))
    end
  else
    if written and ARGV[2] ~= 'lost' then
      redis.call('LREM', KEYS[3], 1, written)
    end
    local message = {m = message_id, items = batch['items'], at = batch['at']}
    if ARGV[2] ~= 'lost' then
      message['sent'] = now_s
    end
    redis.call('LPUSH', KEYS[3], with_progress(message))
    redis.call('LTRIM', KEYS[3], 0, 19)
    redis.call('EXPIRE', KEYS[3], 30 * 86400)
  end
end
if batch and ARGV[2] == 'acked' then
  batch['acked'] = true
  redis.call('HSET', KEYS[2], ARGV[1], cjson.encode(batch))
else
  redis.call('HDEL', KEYS[2], ARGV[1])
end
if redis.call('HLEN', KEYS[2]) == 0 and redis.call('XLEN', KEYS[1]) == 0 then
  return 1
end
return 0
