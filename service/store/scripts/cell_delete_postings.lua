-- Delete postings of a closed cell that have not changed.
-- KEYS: see cell_common
-- ARGV: 1 id of the cell, 2 postings
-- Reply: answer; done if the cell exists
-- include cell_common
local cell = look()
if cell.m and string.sub(cell.m, 1, 6) == 'closed' then
  for page, list in pairs(by_page(ARGV[2], cell.bits)) do
    local postings = redis.call('HGET', CELL, page) or ''
    for _, posting in ipairs(list) do
      local at = place_of(postings, posting)
      if at then
        postings = string.sub(postings, 1, at - 1) .. string.sub(postings, at + SIZE)
        cell.n = cell.n - 1
      end
    end
    if postings == '' then
      redis.call('HDEL', CELL, page)
    else
      redis.call('HSET', CELL, page, postings)
    end
  end
  write_count(cell)
end
return answer(cell, cell.m)
