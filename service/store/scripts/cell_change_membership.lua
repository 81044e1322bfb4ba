-- Replace the membership of a cell if it has not changed.
-- KEYS: see cell_common
-- ARGV: 1 digest of the cell's pair, 2 membership before, 3 membership after (each '' for none), 4 '1' to delete all
--   names
-- Reply: {1 if the membership was as before, answer}
-- include cell_common
local cell = look()
if (cell.m or '') ~= ARGV[2] then
  return {0, answer(cell, false)}
end
if ARGV[3] ~= ARGV[2] then
  cell.m = ARGV[3]
  redis.call('HSET', CELL, 'm', cell.m)
end
if ARGV[4] == '1' then
  redis.call('DEL', NAMES, INDEX, SLOTS)
  cell.n, cell.bits, cell.h, cell.f = 0, 0, 0, ''
  write(cell)
end
if cell.m then
  cell.fresh = true
  kept_until(cell, now_ms + LIFE_MS)
end
return {1, answer(cell, cell.m)}
