-- Replace the record of the matrix in its head cell if it has not changed.
-- KEYS: see cell_common
-- ARGV: 1 id of the cell, 2 record before, 3 record after (each '' for none), 4 membership if the cell is created
-- Reply: answer; done if the record is the one after
-- include cell_common
local cell = look()
if (cell.x or '') == ARGV[2] then
  if cell.few then
    enlarge(cell, cell.few)
  end
  cell.x = ARGV[3]
  redis.call('HSET', CELL, 'x', cell.x)
  if ARGV[2] == '' and not cell.m then
    cell.m = ARGV[4]
    redis.call('HSET', CELL, 'm', cell.m)
  end
  keep_until(cell, now_s + LIFE_S)
end
return answer(cell, cell.x == ARGV[3])
