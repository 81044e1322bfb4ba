-- Queue a document that a hub pushed. If the channel or all channels together exceed a limit, one empty document,
-- which causes a poll, replaces the channel's queue.
-- KEYS: queue, sizes, expiry times
-- ARGV: 1 channel id, 2 document, 3 empty document, 4 maximum length of the queue, 5 TTL in ms, 6 maximum bytes of a
--   channel, 7 bytes above which a queue counts as large, 8 maximum bytes of large queues, 9 maximum bytes of all
--   queues
-- include clock
local cid, document, empty = ARGV[1], ARGV[2], ARGV[3]
local large = tonumber(ARGV[7])

local function size_of(field)
  return tonumber(redis.call('HGET', KEYS[2], field) or 0)
end

local function resize(field, after)
  local before = size_of(field)
  redis.call('HINCRBY', KEYS[2], 'all', after - before)
  redis.call('HINCRBY', KEYS[2], 'large', (after > large and after or 0) - (before > large and before or 0))
  if after > 0 then
    redis.call('HSET', KEYS[2], field, after)
  else
    redis.call('HDEL', KEYS[2], field)
    redis.call('ZREM', KEYS[3], field)
  end
end

for _, expired in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now_ms)) do
  resize(expired, 0)
end
local kept = redis.call('LLEN', KEYS[1])
local last = kept > 0 and redis.call('LINDEX', KEYS[1], -1)
if last == document or last == empty then
  return
end
local before = size_of(cid)
local after = before + #document
local is_too_large = after > large and size_of('large') - (before > large and before or 0) + after > tonumber(ARGV[8])
if document == empty or kept >= tonumber(ARGV[4]) or after > tonumber(ARGV[6]) or is_too_large
    or size_of('all') + #document > tonumber(ARGV[9]) then
  redis.call('DEL', KEYS[1])
  document, after = empty, #empty
end
redis.call('RPUSH', KEYS[1], document)
resize(cid, after)
local until_ms = string.format('%d', now_ms + tonumber(ARGV[5]))
redis.call('ZADD', KEYS[3], until_ms, cid)
for i = 1, 3 do
  redis.call('PEXPIREAT', KEYS[i], until_ms)
end
