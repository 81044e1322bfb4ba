-- Delete the expired postings of a cell.
-- KEYS: see cell_common
-- ARGV: 1 id of the cell
-- Reply: answer
-- include cell_common
local cell = look()
if cell.bits then
  write_pages(cell, cell.bits)
  if cell.bits then
    fit_pages(cell)
  end
else
  sweep_shared()
  cell = look()
end
return answer(cell, true)
