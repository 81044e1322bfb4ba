-- Delete records of a closed cell that have not changed.
-- KEYS: see cell_common
-- ARGV: 1 digest of the cell's pair, then name and record (slot 0) of each
-- Reply: answer; done if the cell exists
-- include cell_common
local cell = look()
if cell.m and string.sub(cell.m, 1, 6) == 'closed' then
  for i = 2, #ARGV, 2 do
    local held = redis.call('HGET', NAMES, ARGV[i])
    if held and string.sub(held, 4) == string.sub(ARGV[i + 1], 4) then
      forget(cell, ARGV[i], held)
    end
  end
  write(cell)
end
return answer(cell, cell.m)
