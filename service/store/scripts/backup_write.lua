-- Write keys of one slot from a backup. The script may be repeated.
-- KEYS: any
-- ARGV: '1' to replace what the keys contain, '' to add to it; then for each key, as backup_read replies: type, end of
--   its life (Unix ms, '0' without one), last id of a stream or '', number of items, items
local at = 2
local function next_argument()
  at = at + 1
  return ARGV[at - 1]
end

-- Run the command for the items, a few at a time, because Lua passes a limited number of arguments.
local function add(command, key, items, swaps)
  for first = 1, #items, 1000 do
    local some = {}
    for j = first, math.min(first + 999, #items), swaps and 2 or 1 do
      if swaps then
        some[#some + 1] = items[j + 1]
      end
      some[#some + 1] = items[j]
    end
    redis.call(command, key, unpack(some))
  end
end

local function add_entries(key, items, last)
  local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local function is_new(id)
    if not newest then
      return true
    end
    local ms, number = string.match(id, '^(%d+)-(%d+)$')
    local newest_ms, newest_number = string.match(newest[1], '^(%d+)-(%d+)$')
    return tonumber(ms) > tonumber(newest_ms) or (ms == newest_ms and tonumber(number) > tonumber(newest_number))
  end
  local j = 1
  while j <= #items do
    local id, count = items[j], tonumber(items[j + 1])
    if is_new(id) then
      redis.call('XADD', key, id, unpack(items, j + 2, j + 1 + count))
    end
    j = j + 2 + count
  end
  if last ~= '' and last ~= '0-0' then
    if redis.call('EXISTS', key) == 0 then
      redis.call('XADD', key, last, 'e', '')
      redis.call('XDEL', key, last)
    elseif not newest or is_new(last) then
      redis.call('XSETID', key, last)
    end
  end
end

for _, key in ipairs(KEYS) do
  local kind, ends, last, count = next_argument(), next_argument(), next_argument(), tonumber(next_argument())
  local items = {}
  for j = 1, count do
    items[j] = next_argument()
  end
  if ARGV[1] == '1' then
    redis.call('DEL', key)
  end
  if kind == 'string' then
    redis.call('SET', key, items[1])
  elseif kind == 'hash' then
    add('HSET', key, items)
  elseif kind == 'set' then
    add('SADD', key, items)
  elseif kind == 'zset' then
    add('ZADD', key, items, true)
  elseif kind == 'list' then
    add('RPUSH', key, items)
  elseif kind == 'stream' then
    add_entries(key, items, last)
  end
  if ends ~= '0' then
    redis.call('PEXPIREAT', key, ends)
  end
end
