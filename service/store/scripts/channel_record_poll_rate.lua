-- Append a poll interval to a channel's history, unless it is close to the last one.
-- KEYS: channel
-- ARGV: interval in s (0: not polled), tolerance (a fraction of the last interval), maximum number of entries
local held = redis.call('HMGET', KEYS[1], 'url', 'paces')
if not held[1] then
  return
end
local paces, interval = held[2] or '', tonumber(ARGV[1])
if paces ~= '' then
  local last = struct.unpack('<f', paces, #paces - 3)
  if math.abs(interval - last) <= last * tonumber(ARGV[2]) then
    return
  end
end
local now = tonumber(redis.call('TIME')[1])
redis.call('HSET', KEYS[1], 'paces', string.sub(paces .. struct.pack('<I4f', now, interval), -8 * tonumber(ARGV[3])))
