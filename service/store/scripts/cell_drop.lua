-- In a closed cell, forget records that are as they were. Then of each record its name and itself, without a slot.
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
