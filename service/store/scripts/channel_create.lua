-- Create a channel at version 1 with its first snapshot, unless it exists.
-- KEYS: channel
-- ARGV: field and value of each field
if redis.call('HEXISTS', KEYS[1], 'url') == 1 then
  return
end
redis.call('DEL', KEYS[1])
-- The time in µs is above every epoch of a deleted channel of this id, which grew by 1 with each adoption.
local now = redis.call('TIME')
local epoch = string.format('%d', now[1] * 1000000 + now[2])
redis.call('HSET', KEYS[1], 'version', 1, 'fanned', 1, 'epoch', epoch, unpack(ARGV))
