-- Note how often a channel is polled from now on, if that is not, within a tolerance, what was noted last.
-- KEYS channel   ARGV s between two polls (0: not at all), tolerance, how many to keep. Returns 1 if it was noted.
local held = redis.call('HMGET', KEYS[1], 'url', 'paces')
if not held[1] then
  return 0
end
local paces, interval = held[2] or '', tonumber(ARGV[1])
if paces ~= '' then
  local last = struct.unpack('<f', paces, #paces - 3)
  if math.abs(interval - last) <= last * tonumber(ARGV[2]) then
    return 0
  end
end
local now = tonumber(redis.call('TIME')[1])
redis.call('HSET', KEYS[1], 'paces', string.sub(paces .. struct.pack('<I4f', now, interval), -8 * tonumber(ARGV[3])))
return 1
