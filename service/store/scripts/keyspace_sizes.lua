-- read-only
-- Count the records of key groups.
-- KEYS: see keyspace_pages
-- ARGV: first and last position of each group
-- Reply: the number of records of each group
-- include keyspace_page_reader
local function size(low, high)
  local first, total = page_of(low), 0
  local starts = redis.call('ZRANGEBYLEX', PAGES, first and '[' .. first or '-', '[' .. high)
  for i, start in ipairs(starts) do
    if i == 1 or i == #starts then
      local page = redis.call('HGET', RECORDS, start)
      total = total + before(page, high) - before(page, low)
    else
      total = total + redis.call('HSTRLEN', RECORDS, start) / RECORD
    end
  end
  return total
end

local sizes = {}
for i = 1, #ARGV, 2 do
  sizes[#sizes + 1] = size(ARGV[i], ARGV[i + 1])
end
return sizes
