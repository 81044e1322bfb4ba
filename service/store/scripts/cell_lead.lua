-- Replace the matrix's record, if it is as it was. ARGV[2] before, [3] after, '' if there is none, [4] the membership that
-- makes of an absent cell. Done if the record is the one after now.
-- include cell_common
local cell = look()
if (cell.x or '') == ARGV[2] then
  cell.x = ARGV[3]
  redis.call('HSET', CELL, 'x', cell.x)
  if ARGV[2] == '' and not cell.m then
    cell.m = ARGV[4]
    redis.call('HSET', CELL, 'm', cell.m)
  end
  cell.fresh = true
  kept_until(cell, now_ms + LIFE_MS)
end
return answer(cell, cell.x == ARGV[3])
