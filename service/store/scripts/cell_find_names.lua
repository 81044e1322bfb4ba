-- Find names that have all of these pairs.
-- KEYS: see cell_common
-- ARGV: 1 digest of the cell's pair, 2 maximum number of names, then digests of the pairs
-- Reply: answer with {name, version, …}; done if the cell exists
-- include cell_common
local cell = look()
if not cell.m then
  return answer(cell, false)
end
cell.q = counted(cell.q, 1)
redis.call('HSET', CELL, 'q', cell.q)
local limit, asked, found = tonumber(ARGV[2]), {}, {}
for i = 3, #ARGV do
  if ARGV[i] ~= OWN then
    asked[#asked + 1] = ARGV[i]
  end
end

local function take(name, record)
  if #record == HEAD or expires_ms(record) <= now_ms then
    return
  end
  for _, digest in ipairs(asked) do
    if not has(record, digest) then
      return
    end
  end
  found[#found + 1] = name
  found[#found + 1] = string.format('%d', (struct.unpack('>I6', record, 4)))
end

local function take_slot_of(slot)
  local name = string.gsub(redis.call('GETRANGE', SLOTS, slot * WIDTH, (slot + 1) * WIDTH - 1), '%z+$', '')
  local record = name ~= '' and redis.call('HGET', NAMES, name)
  if record then
    take(name, record)
  end
end

if cell.bits == 0 then
  local held = redis.call('HGETALL', NAMES)
  for i = 1, #held, 2 do
    if #found < 2 * limit then
      take(held[i], held[i + 1])
    end
  end
  return answer(cell, true, found)
end
if #asked == 0 then
  -- Any names match: start at another slot each time.
  local start = now_ms % math.max(1, cell.h)
  for i = 0, cell.h - 1 do
    if #found >= 2 * limit then
      break
    end
    take_slot_of((start + i) % cell.h)
  end
  return answer(cell, true, found)
end

-- Rows with the fewest bits first.
local rows, bytes = {}, cell.bits / 8
for _, digest in ipairs(asked) do
  for _, row in ipairs({rows_of(digest)}) do
    rows[#rows + 1] = {row, redis.call('BITCOUNT', INDEX, row * bytes, (row + 1) * bytes - 1)}
  end
end
table.sort(rows, function(one, other) return one[2] < other[2] end)
if rows[1][2] == 0 then
  return answer(cell, true, found)
end
for i, row in ipairs(rows) do
  rows[i] = redis.call('GETRANGE', INDEX, row[1] * bytes, (row[1] + 1) * bytes - 1)
end
for at = 1, #rows[1], 4 do
  local word = struct.unpack('>I4', rows[1], at)
  for i = 2, #rows do
    if word == 0 then
      break
    end
    word = bit.band(word, (struct.unpack('>I4', rows[i], at)))
  end
  if word ~= 0 then
    for place = 0, 31 do
      if #found >= 2 * limit then
        return answer(cell, true, found)
      end
      if bit.band(word, bit.lshift(1, 31 - place)) ~= 0 then
        take_slot_of((at - 1) * 8 + place)
      end
    end
  end
end
return answer(cell, true, found)
