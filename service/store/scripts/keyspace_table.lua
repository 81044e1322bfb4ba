-- Library: compare-and-set of a keyspace's server table. KEYS[1] is the table.
-- Return whether the table has exactly these fields.
local function is_as_read(expected)
  local found, fields = redis.call('HGETALL', KEYS[1]), 0
  for _ in pairs(expected) do
    fields = fields + 1
  end
  for i = 1, #found, 2 do
    if expected[found[i]] ~= found[i + 1] then
      return false
    end
  end
  return #found == 2 * fields
end

local function change_table(changes)
  for field, text in pairs(changes.set) do
    redis.call('HSET', KEYS[1], field, text)
  end
  for _, field in ipairs(changes.drop) do
    redis.call('HDEL', KEYS[1], field)
  end
end

-- Change the table and return true, unless it has changed since it was read.
local function changed(changes)
  local read = is_as_read(changes.read)
  if read then
    change_table(changes)
  end
  return read
end
