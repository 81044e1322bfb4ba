-- Merge postings into a cell.
-- KEYS: see cell_common
-- ARGV: 1 id of the cell, 2 '1' if it is the head of its matrix, 3 number of partitions that the writer assumes, 4 since
--   which epoch (3 is 0: do not check), 5 postings
-- Reply: answer; done unless a posting was refused, because the cell is absent or closed or the matrix has more
--   partitions
-- include cell_common
local cell = look()
if not cell.m and ARGV[2] ~= '1' then
  return answer(cell, false)
end
local accepts = true
if cell.m then
  local standing, epoch, partitions = string.match(cell.m, '^(%a+) (%d+) (%d+)')
  local known = tonumber(ARGV[3])
  local more = known > 0 and tonumber(partitions) > known and tonumber(epoch) > tonumber(ARGV[4])
  accepts = standing ~= 'closed' and not more
end
local arriving, latest_s = unexpired(ARGV[5]), 0
if arriving == '' then
  return answer(cell, true)
end
for at = 1, #arriving, SIZE do
  latest_s = math.max(latest_s, expiry_s(arriving, at))
end
local done, is_stored, is_changed = true, nil, false
if cell.few then
  local list = {}
  for at = 1, #arriving, SIZE do
    list[#list + 1] = string.sub(arriving, at, at + SIZE - 1)
  end
  local postings
  postings, done = merge(unexpired(cell.few), list, accepts)
  if #postings > SHARED_MOST * SIZE then
    enlarge(cell, postings)
  else
    write_shared(ID, cell.few, postings)
    cell.few, cell.n = postings, #postings / SIZE
  end
else
  for page, list in pairs(by_page(arriving, cell.bits)) do
    local before = redis.call('HGET', CELL, page) or ''
    local after = math.random(4) == 1 and unexpired(before) or before
    after, is_stored = merge(after, list, accepts)
    done, is_changed = done and is_stored, is_changed or after ~= before
    cell.n = cell.n + (#after - #before) / SIZE
    if after == '' then
      redis.call('HDEL', CELL, page)
    elseif after ~= before then
      redis.call('HSET', CELL, page, after)
    end
  end
  if is_changed then
    write_count(cell)
  end
end
if cell.bits then
  fit_pages(cell)
end
keep_until(cell, latest_s)
if math.random(16) == 1 then
  sweep_shared()
end
return answer(cell, done)
