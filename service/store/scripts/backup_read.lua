-- read-only
-- Read keys of one slot at one moment, for a backup.
-- KEYS: any
-- Reply: for each key {type, end of its life (Unix ms, '0' without one), last id of a stream or '', items}. Items are
--   the value of a string, the members of a list or set, fields and values of a hash, members and scores of a sorted
--   set; of a stream for each entry its id, the number of its fields and values, and these
-- include clock
local reply = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key)['ok']
  local ttl_ms = redis.call('PTTL', key)
  local ends, last, items = ttl_ms > 0 and string.format('%.0f', now_ms + ttl_ms) or '0', '', {}
  if kind == 'string' then
    items = {redis.call('GET', key)}
  elseif kind == 'hash' then
    items = redis.call('HGETALL', key)
  elseif kind == 'set' then
    items = redis.call('SMEMBERS', key)
  elseif kind == 'zset' then
    items = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then
    items = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'stream' then
    local info = redis.call('XINFO', 'STREAM', key)
    for j = 1, #info, 2 do
      if info[j] == 'last-generated-id' then
        last = info[j + 1]
      end
    end
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
      items[#items + 1] = entry[1]
      items[#items + 1] = tostring(#entry[2])
      for _, part in ipairs(entry[2]) do
        items[#items + 1] = part
      end
    end
  end
  reply[i] = {kind, ends, last, items}
end
return reply
