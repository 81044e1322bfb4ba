-- Change how a cell stands, if it stands as before. ARGV[2] membership before, [3] after, each '' if there is none, [4] 1:
-- forget its names. The reply begins with whether it did.
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
