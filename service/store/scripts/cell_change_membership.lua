-- Replace the membership of a cell if it has not changed.
-- KEYS: see cell_common
-- ARGV: 1 id of the cell, 2 membership before, 3 membership after (each '' for none), 4 '1' to delete all postings
-- Reply: {1 if the membership was as before, answer}
-- include cell_common
local cell = look()
if (cell.m or '') ~= ARGV[2] then
  return {0, answer(cell, false)}
end
if ARGV[3] ~= ARGV[2] then
  if cell.few then
    enlarge(cell, cell.few)
  end
  cell.m = ARGV[3]
  redis.call('HSET', CELL, 'm', cell.m)
end
if ARGV[4] == '1' then
  for _, field in ipairs(redis.call('HKEYS', CELL)) do
    if field ~= 'm' and field ~= 'x' then
      redis.call('HDEL', CELL, field)
    end
  end
  cell.n, cell.bits, cell.until_s = 0, 0, 0
end
if cell.m then
  keep_until(cell, now_s + LIFE_S)
end
return {1, answer(cell, cell.m)}
